"""Cross-entropy along paths that end in a given x_1: what `multimdm couple` makes small."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from multimdm.objectives.base import Batch, Network, Sums, both
from multimdm.objectives.paths import tied_path
from multimdm.process import MultiMask
from multimdm.process.anchored import told_of_end

Weight = Literal["elbo", "even"]


@dataclass(frozen=True)
class Coupled:
    """-log p(x_0^l | x_t, x_1^l) at hidden positions, x_1 as matched (`Batch.noise`) or, without that, as drawn.

    A share `at_one` of the batch is at t = 1, where sampling begins and one call has to do most; the rest is spread
    over all times. The weight of a time is that of the ELBO, -alpha'_t / (1 - alpha_t): every position then counts
    once, at the time at which it is revealed, and a sampler on an even grid reveals equally many in each of its steps.
    With `even`, hidden positions count alike at all times, and late times, where more is hidden, count more.
    """

    process: MultiMask
    at_one: float = 0.25
    weight: Weight = "elbo"

    def __call__(self, network: Network, batch: Batch) -> Sums:
        """One draw of x_t per sequence."""
        u = batch.times.to(batch.ids.device)
        t = (u / (1 - self.at_one)).clamp_max(1.0)
        path = tied_path(self.process, batch)
        x_t = path.corrupt(batch, t)
        active = both(self.process.active(x_t), batch.valid)
        where = active.nonzero(as_tuple=True)  # once: on a GPU it waits for the positions
        clean, state, last, time = batch.ids[where], x_t[where], path.end[where], t[where[0]]
        values = self.process.schedule(time)
        weight = -values.d_alpha / values.one_minus_alpha if self.weight == "elbo" else torch.ones_like(time)
        first_step = time == 1
        weight = torch.where(first_step, 1.0, weight)

        def reduce(logits: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
            told = told_of_end(self.process, logits, state[rows], last[rows], time[rows])
            loss = F.cross_entropy(told, clean[rows], reduction="none") * weight[rows].to(told.dtype)
            drafted = torch.where(first_step[rows], loss.detach(), 0.0).sum()
            total = loss.sum()
            return total, drafted, total.detach() - drafted

        loss, draft, rest = network(path.shown(x_t), t, active, batch.valid, reduce)
        # Each in nats per token of its own share of the batch.
        shares = {"draft": (draft, self.at_one), "path": (rest, 1 - self.at_one)}
        return Sums(loss, {name: value / share for name, (value, share) in shares.items() if share > 0})
