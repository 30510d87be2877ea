"""The perfect network of Tales: the exact prediction that training can only come near to.

For masks it is the posterior p(x_0^l | x_t), for uniform states and for masks that the process reads itself (readout
context) the leave-one-out distribution, p(x_0^l | x_t without position l), and where the noise is shown beside the
state, p(x_0^l | x_t, x_1) for an x_1 that is independent of the text. All are those of the judged source (`Tales`), in
which every token may be replaced: samplers make states that no story has, and a prediction is wanted there too.
Whatever is lost with it, the process and the sampler lose.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor, nn
from torch.nn import functional as F

from multimdm._checks import require
from multimdm.data.tales import Tales
from multimdm.process import Mixture, MultiMask, Process, Time, Uniform
from multimdm.process.evidence import evidence, tied_evidence


@dataclass(frozen=True)
class PerfectConfig:
    """What is asked of the settings of any network."""

    vocab_size: int
    num_masks: int
    max_length: int
    """The longest sequence: that of the stories."""


class PerfectNetwork(nn.Module):
    """Called like any network: log-probabilities in float64, which no other network could improve on.

    It has nothing to train, and computes on the CPU.
    """

    def __init__(self, tales: Tales, process: Process, epsilon: float | int = Tales.EPSILON) -> None:
        super().__init__()
        require(
            isinstance(process, MultiMask | Uniform),
            f"the perfect network is for masks and for uniform states; got {process!r}",
        )
        require(
            process.vocab_size == tales.vocab_size,
            f"process must have the {tales.vocab_size} tokens of Tales; got {process.vocab_size}",
        )
        self.tales, self.process, self.epsilon = tales, process, tales.check_epsilon(epsilon)
        self.config = PerfectConfig(tales.vocab_size, process.num_masks, tales.length)
        # Whoever runs a network asks a parameter on which device it is.
        self.place = nn.Parameter(torch.empty(0), requires_grad=False)

    def forward(
        self,
        x_t: Int[Tensor, "B L"] | Mixture,
        t: Time | None = None,
        positions: Bool[Tensor, "B L"] | None = None,
        valid: Bool[Tensor, "B L"] | None = None,
        reduce: Callable[[Tensor, slice], Any] | None = None,
    ) -> Any:
        """log p [B, L, V]; with `positions`, [positions.sum(), V] in row-major order; or what `reduce` makes of those.

        `t` may be left out with one mask, where the prediction does not depend on it. Of what is not `valid` nothing is
        known. Sequences may be shorter than stories: they are beginnings of stories then.
        """
        log_probs = self.features(x_t, t, positions, valid)
        if reduce is None:
            return log_probs
        rows = log_probs.reshape(-1, self.config.vocab_size)
        return reduce(rows, slice(0, len(rows)))

    @torch.no_grad()
    def features(
        self, x_t: Tensor | Mixture, t: Time | None = None, positions: Tensor | None = None, valid: Tensor | None = None
    ) -> Float64[Tensor, "..."]:
        """The prediction itself: there is no head after it."""
        seen = self._evidence(x_t, t)
        if valid is not None:
            seen = torch.where(valid[..., None], seen, 1.0)
        found = self.tales.leave_one_out(self._whole(seen), self.epsilon)[:, : seen.shape[1]]
        if self.process.readout == "posterior":
            found = (found + seen.log()).log_softmax(-1)
        return found if positions is None else found[positions]

    def logits(self, features: Tensor) -> Tensor:
        """The features themselves: nothing is left to be done."""
        return features

    def _evidence(self, x_t: Tensor | Mixture, t: Time | None) -> Float64[Tensor, "B L V"]:
        """What every position tells of its own token."""
        process = self.process
        if t is None:
            require(process.num_masks == 1, "t must be given: it tells how much a state can be trusted")
            t = 1.0
        if isinstance(x_t, Tensor):
            return evidence(process, x_t, t)
        assert isinstance(process, MultiMask)
        require(process.noise_shown, f"x_t must be ids, since the noise is not shown beside them; got {process!r}")
        state, x_1 = x_t.ids.unbind(-1)
        return tied_evidence(process, state, x_1 - process.num_masks, x_t.weights[..., 1] > 0, t)

    def _whole(self, seen: Float64[Tensor, "B L V"]) -> Float64[Tensor, "B length V"]:
        """What is seen, made as long as stories are; nothing is known of what follows."""
        length = seen.shape[1]
        require(
            length <= self.tales.length,
            f"sequences may be {self.tales.length} long at most, as stories are; got {length}",
        )
        return F.pad(seen, (0, 0, 0, self.tales.length - length), value=1.0)
