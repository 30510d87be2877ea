"""DUO's curriculum: for the first part of training the network is shown a soft version of x_t, which is easier to read.

The soft input is softmax(w / tau) of a Gaussian latent w whose argmax is x_t (`process/relaxation.py`); the loss is
that of the uniform-state process at x_t, over the times where the latent says something. Then the plain NELBO follows.
"""

import math
from dataclasses import dataclass as plain_dataclass
from functools import lru_cache
from typing import Annotated

import torch
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from multimdm.objectives.base import Batch, Network, Sums
from multimdm.objectives.elbo import Elbo, elbo_sums
from multimdm.objectives.ramp import Share
from multimdm.process import Uniform
from multimdm.process.checks import require
from multimdm.process.gaussian import snr_of_alpha
from multimdm.process.relaxation import relaxed_state, relaxed_times, sufficient_top

ALPHA_RANGE = (0.95, 0.05)
"""What DUO's published gammas, -3.55 and -1.85, come to for GPT-2's vocabulary."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Relaxation:
    """The settings of the curriculum."""

    share: Share = 0.5
    """Of training, with soft inputs. DUO: half."""
    tau: Annotated[float, Field(gt=0)] = 1e-3
    """Temperature of the softmax: small is nearly hard."""
    gamma_min: float | None = None
    """Log-noise range of the latent. Without it, that in which alpha falls from 0.95 to 0.05, for any vocabulary."""
    gamma_max: float | None = None
    top: Annotated[int, Field(ge=1)] | None = None
    """How many of the largest entries of the latent are kept. Without it, so many that the rest has no weight to speak
    of; the work grows with its square, so a tau far above 1e-3 is for small vocabularies."""

    @model_validator(mode="after")
    def _check(self) -> "Relaxation":
        given = (self.gamma_min, self.gamma_max)
        if (given[0] is None) != (given[1] is None):
            raise ValueError(f"give both gamma_min and gamma_max or neither; got {given[0]} and {given[1]}")
        if given[0] is not None and given[1] is not None and given[0] >= given[1]:
            raise ValueError(f"gamma_min must be below gamma_max; got {given[0]} and {given[1]}")
        return self

    @lru_cache(maxsize=4)  # noqa: B019 (settings are few, frozen and small)
    def gammas(self, vocab_size: int) -> tuple[float, float]:
        """The range, computed for the vocabulary if it was not given."""
        if self.gamma_min is not None and self.gamma_max is not None:
            return self.gamma_min, self.gamma_max
        alpha = torch.tensor(ALPHA_RANGE, dtype=torch.float64)
        low, high = (-2 * torch.log(snr_of_alpha(alpha, 1 - alpha, vocab_size))).tolist()
        return low, high

    @lru_cache(maxsize=4)  # noqa: B019
    def entries(self, vocab_size: int) -> int:
        """How many entries of the latent are kept, computed for the vocabulary if it was not given."""
        if self.top is not None:
            return self.top
        gamma_min, _ = self.gammas(vocab_size)
        return sufficient_top(vocab_size, self.tau, math.sqrt(1 / (1 + math.exp(-gamma_min))))


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
        V, device = self.process.vocab_size, batch.ids.device
        at = relaxed_times(batch.times.to(device), *self.settings.gammas(V), V)
        state = relaxed_state(
            batch.ids, at.signal, at.noise, V, self.settings.tau, batch.generator, self.settings.entries(V)
        )
        density = at.speed if batch.weight is None else at.speed * batch.weight.to(device)
        return elbo_sums(network, self.process, batch, state.mixture, state.x_t, at.one_minus_alpha, density=density)
