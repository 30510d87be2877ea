"""The evidence lower bound, Eq. (sequence_objective_main): one time per sequence, all its hidden positions."""

from dataclasses import dataclass

import torch
from torch import Tensor

from multimdm.objectives.base import Batch, Network, Sums, of_rows, told_by_time
from multimdm.objectives.context import Context
from multimdm.objectives.ramp import NO_RAMP, Ramp
from multimdm.process import Process


@dataclass(frozen=True)
class Elbo:
    """The negative ELBO of MultiMDM, MDLM (one mask) and DUO (`Uniform`), with the identification term ramped in."""

    process: Process
    ramp: Ramp = NO_RAMP
    context: Context | None = None
    """Mistakes in what the network is shown; what is minimised is then no bound."""

    def __post_init__(self) -> None:
        if self.context is not None:
            self.context.check(self.process)

    def __call__(self, network: Network, batch: Batch) -> Sums:
        """One draw of x_t per sequence."""
        t = batch.times.to(batch.ids.device)
        x_t = batch.keep(self.process.corrupt(batch.ids, t, batch.generator))
        shown = x_t if self.context is None else self.context.shown(network, self.process, batch, x_t, t)
        return elbo_sums(network, self.process, batch, shown, x_t, t, self.ramp(batch.progress), batch.weight)


def elbo_sums(
    network: Network,
    process: Process,
    batch: Batch,
    shown: Tensor | tuple[Tensor, Tensor],
    x_t: Tensor,
    t: Tensor,
    identification_weight: float = 1.0,
    density: Tensor | None = None,
) -> Sums:
    """Sums of both loss terms at the active positions, where the network is shown `shown` in place of x_t.

    `density` weighs the sequences: what an importance-sampled time stands for. No [B, L, V] tensor is made: the network
    calls `reduce` on chunks of rows and differentiates each at once.
    """
    active = batch.asked(process.active(x_t))
    where = active.nonzero(as_tuple=True)  # once: on a GPU it waits for the positions
    clean, state, time = batch.ids[where], x_t[where], t[where[0]]
    weight = of_rows(density, where[0])
    each = torch.empty(len(clean), dtype=torch.float64, device=clean.device)

    def reduce(logits: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        terms = process.logit_loss(logits, clean[rows], state[rows], time[rows])
        reconstruction, identification = terms.reconstruction, terms.identification
        if weight is not None:
            reconstruction, identification = (x * weight[rows] for x in (reconstruction, identification))
        loss = (reconstruction + identification_weight * identification).sum()
        each[rows] = (reconstruction + identification).detach()
        return loss, reconstruction.sum(), identification.sum()

    loss, reconstruction, identification = network(shown, t, active, batch.valid, reduce)
    terms = {"reconstruction": reconstruction, "identification": identification}
    return Sums(loss, terms, told_by_time(batch, each, where[0]))
