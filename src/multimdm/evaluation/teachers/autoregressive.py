"""An autoregressive checkpoint of ours as teacher."""

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.evaluation.teachers.base import from_left_to_right
from multimdm.models import DiT, Remembering
from multimdm.objectives.next_token import shift_right
from multimdm.pipeline import Model
from multimdm.process.places import exact, home_of
from multimdm.process.quantile import Cells, Order, cells, token_at

_TOGETHER = 64
"""Sequences that go through the network together: a constant, so that cells do not depend on who asks."""


class AutoregressiveTeacher:
    """q(x_l | x_<l), the first token included: the network is shown a start symbol before it."""

    def __init__(self, name: str, fingerprint: str, model: Model, length: int) -> None:
        require(
            model.process is None,
            f"teacher '{name}' must be autoregressive (system: ar); it is a diffusion model, which draws in no order",
        )
        longest = model.network.config.max_length
        require(length <= longest, f"teacher '{name}' was made for {longest} tokens at most; the texts have {length}")
        assert isinstance(model.network, DiT)
        self.name, self.fingerprint = name, fingerprint
        self.vocab_size: int = model.network.config.vocab_size
        self._network = model.network.eval()

    def to(self, device: torch.device) -> None:
        """Compute there from now on."""
        self._network.to(device)

    def embeddings(self) -> Float[Tensor, "V d"]:
        """The rows of the map to logits."""
        return self._network.output_layer.linear.weight.detach()

    @torch.no_grad()
    def cells(self, ids: Int64[Tensor, "B L"], order: Order = "id") -> Cells:
        """The cells by one call; no table of V numbers for every position is kept."""
        found = [self._cells(part, order) for part in ids.split(_TOGETHER)]
        return Cells(*(torch.cat(column) for column in zip(*found, strict=True)))

    def _cells(self, ids: Tensor, order: Order) -> Cells:
        tokens, device = ids.flatten(), home_of(next(self._network.parameters()).device)

        def reduce(logits: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
            probs = exact(logits).softmax(-1)
            return cells(probs, tokens[rows].to(probs.device), order)

        everywhere = torch.ones_like(ids, dtype=torch.bool, device=device)
        shown = shift_right(ids, self.vocab_size).to(device)
        lower, width = self._network(shown, None, positions=everywhere, valid=None, reduce=reduce)
        return Cells(lower.view(ids.shape).cpu(), width.view(ids.shape).cpu())

    @torch.no_grad()
    def write(self, u: Float64[Tensor, "B L"], order: Order = "id") -> Int64[Tensor, "B L"]:
        """One network call per token, which looks at the last one only."""
        device = home_of(next(self._network.parameters()).device)
        network = Remembering(self._network)

        def choose(beginning: Tensor, number: Tensor) -> Tensor:
            start = torch.full((len(beginning), 1), self.vocab_size, device=device)
            inputs = torch.cat([start, beginning], dim=1)
            last = torch.zeros_like(inputs, dtype=torch.bool)
            last[:, -1] = True
            logits = network(inputs, None, positions=last)
            assert isinstance(logits, Tensor)
            return token_at(exact(logits).softmax(-1), number, order)

        return from_left_to_right(u.to(device), choose).cpu()
