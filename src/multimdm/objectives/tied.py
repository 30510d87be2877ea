"""Cross-entropy along paths to a given x_1: what `multimdm couple` makes small.

Shapes: B sequences of L positions; N packed positions that are asked for, n of them in a chunk of the network's head.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from multimdm._checks import require
from multimdm.objectives.base import Batch, Network, Sums
from multimdm.objectives.settings import Kind, Shares
from multimdm.objectives.states import draw_states
from multimdm.process import MultiMask
from multimdm.process.fused_readout import cross_entropy

Weight = Literal["elbo", "even"]
_RECORDS = {
    Kind.AT_ONE: "draft",
    Kind.MASKS: "path",
    Kind.SUREST: "surest",
    Kind.DRAFTS: "rewrite",
}
"""What the cross-entropy of a kind of state is called in the records."""


@dataclass(frozen=True)
class Tied:
    """-log p(x_0^l | x_t, x_1) at hidden positions, x_1 the text's own (`Batch.x_1`) or, without that, as drawn.

    The batch is shared out among several kinds of states (`states.py`). Under random masks the weight of a time is that
    of the ELBO, -alpha'_t / (1 - alpha_t): every position then counts once, at the time at which it is revealed, and a
    sampler on an even grid reveals equally many in each of its steps. With `even`, hidden positions count alike at all
    times, and late times, where more is hidden, count more; so they do in all other states.
    """

    process: MultiMask
    shares: Shares = field(default_factory=Shares)
    weight: Weight = "elbo"

    def __post_init__(self) -> None:
        require(
            self.process.tied_noise,
            f"process must have its noise tied to the text (`process.tied()`); got {self.process!r}",
        )

    def __call__(self, network: Network, batch: Batch) -> Sums:
        """One draw of x_t per sequence."""
        path = batch.path(self.process)
        states = draw_states(network, path, batch, self.shares)
        where = states.asked.nonzero(as_tuple=True)  # once: on a GPU it waits for the positions
        asked = path.at(where)
        clean = batch.ids[where]
        state = states.x_t[where]
        time = states.t[where[0]]
        kind = states.kind[where[0]]
        # -alpha'_t / (1 - alpha_t), the rate at which tokens are revealed
        values = self.process.schedule(time)
        by_reveal = -values.d_alpha / values.one_minus_alpha
        weight = torch.where((kind == Kind.MASKS) & (self.weight == "elbo"), by_reveal, 1.0)

        def reduce(logits: Tensor, rows: slice) -> tuple[Tensor, ...]:
            prediction = asked.at(rows).condition(logits, state[rows], time[rows])
            loss = cross_entropy(prediction, clean[rows], "none") * weight[rows].to(prediction.dtype)
            parts = (torch.where(kind[rows] == each, loss.detach(), 0.0).sum() for each in _RECORDS)
            return loss.sum(), *parts

        shown = path.shown(states.x_t, states.given)
        loss, *parts = network(shown, states.t, states.asked, batch.valid, reduce)
        # Each in nats per token of its own share of the batch.
        shares = {
            name: (part, self.shares.of(kind)) for (kind, name), part in zip(_RECORDS.items(), parts, strict=True)
        }
        return Sums(loss, {name: value / share for name, (value, share) in shares.items() if share > 0})
