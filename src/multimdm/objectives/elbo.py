"""The evidence lower bound, Eq. (sequence_objective_main): one time per sequence, all its hidden positions.

Shapes: as in `rows.py`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from multimdm.objectives.base import Batch, Network, Sums, of_rows, sums_by_time
from multimdm.objectives.context import Context
from multimdm.objectives.ramp import NO_RAMP, Ramp
from multimdm.objectives.rows import Rows, rows_on
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
        path = batch.path(self.process)
        x_t = batch.keep(path.corrupt(batch.ids, t, batch.generator))
        shown = None if self.context is None else self.context.shown(network, self.process, batch, x_t, t)
        rows = rows_on(path, batch.ids, x_t, t, batch.asked(self.process.active(x_t)), batch.valid, shown)
        return elbo_sums(network, batch, rows, self.ramp(batch.progress), batch.weight)


def elbo_sums(
    network: Network,
    batch: Batch,
    rows: Rows,
    identification_weight: float = 1.0,
    density: Tensor | None = None,
) -> Sums:
    """Sums of both loss terms; `density` weighs the sequences: what an importance-sampled time stands for."""
    sequence = rows.where[0]
    weight = of_rows(density, sequence)
    each = torch.empty(len(sequence), dtype=torch.float64, device=sequence.device)

    def reduce(logits: Tensor, part: slice) -> tuple[Tensor, Tensor, Tensor]:
        terms = rows.terms(logits, part)
        reconstruction = terms.reconstruction
        identification = terms.identification
        if weight is not None:
            reconstruction = reconstruction * weight[part]
            identification = identification * weight[part]
        loss = (reconstruction + identification_weight * identification).sum()
        each[part] = (reconstruction + identification).detach()
        return loss, reconstruction.sum(), identification.sum()

    loss, reconstruction, identification = rows.call(network, reduce)
    terms = {"reconstruction": reconstruction, "identification": identification}
    return Sums(loss, terms, sums_by_time(batch, each, sequence))
