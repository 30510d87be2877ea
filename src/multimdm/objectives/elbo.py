"""The evidence lower bound, Eq. (sequence_objective_main): one time per sequence, all its hidden positions.

`RelaxedElbo` is DUO's: the same bound, with soft inputs at first.

Shapes: as in `base.py`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from multimdm._checks import require
from multimdm.objectives.base import Batch, Network, Rows, Sums, of_rows, rows_on, sums_by_time
from multimdm.objectives.context import Context
from multimdm.objectives.curricula import NO_RAMP, Ramp
from multimdm.objectives.settings import Relaxation
from multimdm.process import Process, Uniform
from multimdm.process.relaxation import relaxed_state, relaxed_times


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
        # x_t ~ p_t(. | x_0), on the path to x_1 if it is kept
        t = batch.times.to(batch.ids.device)
        path = batch.path(self.process)
        x_t = batch.keep(path.corrupt(batch.ids, t, batch.generator))
        shown = None if self.context is None else self.context.shown(network, self.process, batch, x_t, t)
        rows = rows_on(path, batch.ids, x_t, t, batch.asked(self.process.active(x_t)), batch.valid, shown)
        return elbo_sums(network, batch, rows, self.ramp(batch.progress), batch.weight)


@dataclass(frozen=True)
class RelaxedElbo:
    """DUO's curriculum: soft inputs, which are easier to read, for the first part of training; then the plain NELBO.

    The soft input is softmax(w / tau) of a Gaussian latent w whose argmax is x_t (`process/relaxation.py`). The loss is
    that of the uniform-state process at x_t, over the times where the latent says something.
    """

    process: Uniform
    settings: Relaxation

    def __post_init__(self) -> None:
        require(
            self.process.schedule.kind == "linear",
            f"the relaxation needs the linear schedule, alpha = 1 - t; got {self.process.schedule.kind}",
        )

    def __call__(self, network: Network, batch: Batch) -> Sums:
        """The plain NELBO or, in the first part, its integral over the times of the gamma range alone."""
        if batch.progress >= self.settings.share:
            return Elbo(self.process)(network, batch)
        V = self.process.vocab_size
        device = batch.ids.device
        at = relaxed_times(batch.times.to(device), *self.settings.gammas(V), V)
        state = relaxed_state(
            batch.ids, at.signal, at.noise, V, self.settings.tau, batch.generator, self.settings.entries(V)
        )
        # The mean over u of -(d alpha / du) l_t is the integral of l_t over t = 1 - alpha.
        density = at.speed if batch.weight is None else at.speed * batch.weight.to(device)
        asked = batch.asked(self.process.active(state.x_t))
        t = at.one_minus_alpha  # the linear schedule's
        rows = rows_on(self.process.path_to(), batch.ids, state.x_t, t, asked, batch.valid, state.mixture)
        return elbo_sums(network, batch, rows, density=density)


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
    # What is recorded by time is the bound, whatever the ramp makes of it.
    each = torch.empty(len(sequence), dtype=torch.float64, device=sequence.device)

    def reduce(logits: Tensor, part: slice) -> tuple[Tensor, Tensor, Tensor]:
        terms = rows.terms(logits, part)
        reconstruction = terms.reconstruction
        identification = terms.identification
        if weight is not None:
            reconstruction = reconstruction * weight[part]
            identification = identification * weight[part]
        # L = L_rec + w L_id; what is recorded is L_rec + L_id
        loss = (reconstruction + identification_weight * identification).sum()
        each[part] = (reconstruction + identification).detach()
        return loss, reconstruction.sum(), identification.sum()

    loss, reconstruction, identification = rows.call(network, reduce)
    terms = {"reconstruction": reconstruction, "identification": identification}
    return Sums(loss, terms, sums_by_time(batch, each, sequence))
