"""DUO's curriculum: for the first part of training the network is shown a soft version of x_t, which is easier to read.

The soft input is softmax(w / tau) of a Gaussian latent w whose argmax is x_t (`process/relaxation.py`); the loss is
that of the uniform-state process at x_t, over the times where the latent says something. Then the plain NELBO follows.
"""

from dataclasses import dataclass as plain_dataclass

from multimdm.objectives.base import Batch, Network, Sums
from multimdm.objectives.elbo import Elbo, elbo_sums
from multimdm.objectives.rows import rows_on
from multimdm.objectives.settings import Relaxation
from multimdm.process import Uniform
from multimdm.process.checks import require
from multimdm.process.relaxation import relaxed_state, relaxed_times


@plain_dataclass(frozen=True)
class RelaxedElbo:
    """Soft inputs first, the plain NELBO after."""

    process: Uniform
    settings: Relaxation

    def __post_init__(self) -> None:
        require(
            self.process.schedule.kind == "linear",
            f"the relaxation needs the linear schedule, alpha = 1 - t; got {self.process.schedule.kind}",
        )

    def __call__(self, network: Network, batch: Batch) -> Sums:
        """In the first part, the integral over the times of the gamma range only: less than the whole NELBO."""
        if batch.progress >= self.settings.share:
            return Elbo(self.process)(network, batch)
        V = self.process.vocab_size
        device = batch.ids.device
        at = relaxed_times(batch.times.to(device), *self.settings.gammas(V), V)
        state = relaxed_state(
            batch.ids, at.signal, at.noise, V, self.settings.tau, batch.generator, self.settings.entries(V)
        )
        density = at.speed if batch.weight is None else at.speed * batch.weight.to(device)
        asked = batch.asked(self.process.active(state.x_t))
        t = at.one_minus_alpha  # the linear schedule's
        rows = rows_on(self.process.path_to(), batch.ids, state.x_t, t, asked, batch.valid, state.mixture)
        return elbo_sums(network, batch, rows, density=density)
