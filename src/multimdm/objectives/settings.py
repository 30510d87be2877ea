"""The settings of objectives, which recipes hold. Imports no torch, so that the help of training commands is quick."""

import math
from dataclasses import dataclass as plain_dataclass
from dataclasses import fields
from enum import IntEnum
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from multimdm.objectives.curricula import Rounds, Share, StepSize

Coupling = Literal["gumbel", "gaussian", "markov", "independent"]
Divergence = Literal["reverse_kl", "forward_kl", "mse", "tvd"]
"""reverse_kl: KL(student || teacher), which seeks the teacher's modes; forward_kl: KL(teacher || student), which covers
them; mse: the squared distance of the probabilities; tvd: half the sum of their absolute differences."""
VisibleTarget = Literal["skip", "cross_entropy", "smoothed"]
ALPHA_RANGE = (0.95, 0.05)
"""What DUO's published gammas, -3.55 and -1.85, come to for GPT-2's vocabulary."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class ConsistencySettings(Rounds):
    """The settings of consistency distillation; defaults are the paper's."""

    coupling: Coupling = "gumbel"
    """What ties x_s to x_t: a shared-Gumbel path, DUO's shared-Gaussian path (for duo; that is DUO-DCD), the forward
    chain (markov), or nothing but the text (independent); the last two are controls."""
    divergence: Literal["reverse_kl", "forward_kl"] = "reverse_kl"
    """KL(student || teacher), or KL(teacher || student), for which the theorem is."""
    visible_target: VisibleTarget = "skip"
    """Where a token is masked at t and visible at s the teacher's prediction is certain, and reverse KL infinite.
    skip: nothing is learnt there, and pairs along gumbel paths are drawn so that leaving these positions out does not
    select (`path_revealed_apart`). cross_entropy: -log of the student's probability of the token (the forward KL).
    smoothed: the divergence from the certain prediction mixed with a little of the uniform one."""
    smoothing: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    """The share of the uniform distribution; for `smoothed`."""
    teacher: Literal["ema", "rounds"] = "ema"
    """ema: a moving average of the student, after every step. rounds: a copy of the student, at the end of a round."""
    mu: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Decay of the moving average; the paper does not give it."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class SdttSettings(Rounds):
    """The settings of SDTT; defaults are those of the published code, with its intended times."""

    delta: StepSize = 2.0**-10
    """The teacher's step in the first round."""
    rounds: Annotated[int, Field(ge=1)] = 7
    growth: Annotated[int, Field(ge=2, le=2**20)] = 2
    """The factor from round to round; equal to teacher_steps, it makes the student's step the next teacher's."""
    teacher_steps: Annotated[int, Field(ge=1, le=2**20)] = 2
    """Reverse steps of the teacher for one of the student."""
    divergence: Divergence = "reverse_kl"
    compat: bool = False
    """The times of the published code, whose interpolation between the first and the last is mistaken."""

    @model_validator(mode="after")
    def _check_span(self) -> "SdttSettings":
        if self.last * self.teacher_steps > 1 + 1e-9:
            raise ValueError(
                f"{self.teacher_steps} steps of the teacher would take {self.last * self.teacher_steps:g} in the last "
                f"of {self.rounds} rounds, more than the whole time from 0 to 1; take fewer rounds or a smaller delta"
            )
        return self


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Relaxation:
    """The settings of DUO's curriculum, which shows the network soft inputs at first."""

    share: Share = 0.5
    """The share of training with soft inputs; half for DUO."""
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
        import torch

        from multimdm.process.shared_noise import snr_of_alpha

        alpha = torch.tensor(ALPHA_RANGE, dtype=torch.float64)
        low, high = (-2 * torch.log(snr_of_alpha(alpha, 1 - alpha, vocab_size))).tolist()
        return low, high

    @lru_cache(maxsize=4)  # noqa: B019
    def entries(self, vocab_size: int) -> int:
        """How many entries of the latent are kept, computed for the vocabulary if it was not given."""
        if self.top is not None:
            return self.top
        from multimdm.process.relaxation import sufficient_top

        gamma_min, _ = self.gammas(vocab_size)
        return sufficient_top(vocab_size, self.tau, math.sqrt(1 / (1 + math.exp(-gamma_min))))


class Kind(IntEnum):
    """The kinds of states that a network with kept noise is trained on."""

    MASKS = 0
    """Every position is hidden by itself, with probability 1 - alpha_t."""
    SUREST = 1
    """The tokens stand at the positions that the network, seeing noise alone, is surest of; the rest is hidden.

    They are the text's own, not the network's guesses: a sampler never takes back what it has revealed, so that the
    rest has to fit it, right or wrong. Trained on wrong tokens and what should have stood beside them, a network learns
    to trust neither."""
    DRAFTS = 2
    """The network's guesses from noise stand everywhere, and all are to be predicted again."""
    AT_ONE = 3
    """Everything is hidden."""


@plain_dataclass(frozen=True)
class Shares:
    """The share of the batch that each kind has; random masks have the rest."""

    at_one: float = 0.25
    surest: float = 0.0
    drafts: float = 0.0
    prompts: float = 0.0
    """The share of the sequences of every kind whose beginning is given."""

    def __post_init__(self) -> None:
        shares = {field.name: getattr(self, field.name) for field in fields(self)}
        if min(shares.values()) < 0 or self.masks < -1e-9 or self.prompts > 1:
            raise ValueError(
                f"the shares at_one, surest and drafts must not exceed 1 together, nor prompts by itself; got "
                f"{', '.join(f'{name} {share:g}' for name, share in shares.items())}",
            )

    @property
    def masks(self) -> float:
        """The share of random masks."""
        return 1 - self.at_one - self.surest - self.drafts

    def of(self, kind: Kind) -> float:
        """The share of a kind."""
        return max(0.0, getattr(self, kind.name.lower()))


_SHARE = 0.1
_SEQUENCES = 0.5
"""The shares of mistakes, unless given."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class ContextSettings:
    """Mistakes in the contexts of training."""

    by: Literal["none", "uniform", "marginal", "own"] = "none"
    """What stands in place of a token. none: the token; there are no mistakes. uniform: any token, all alike. marginal:
    any token, as often as the data have it. own: what the network draws there in a step of its sampler from a later
    time, which costs another call, without gradient: states that its sampler visits."""
    share: Share = _SHARE
    """The share of the visible tokens of a sequence with mistakes that are replaced, by a token that may be the same.
    With own it says how long the step is: at the time that it comes from, so much less of the text is visible."""
    sequences: Share = _SEQUENCES
    """The share of the sequences that have mistakes."""

    @model_validator(mode="after")
    def _check(self) -> "ContextSettings":
        if self.by == "none" and (self.share, self.sequences) != (_SHARE, _SEQUENCES):
            raise ValueError(
                f"by must be uniform, marginal or own where a share of mistakes is given; got none with share "
                f"{self.share:g} and sequences {self.sequences:g}"
            )
        return self


_DENSITIES = {"power": ("late",), "center": ("bell",), "width": ("bell",), "even": ("late", "bell")}
"""Which densities of times a parameter is for."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class TimeSettings:
    """Which times are trained on."""

    density: Literal["uniform", "late", "bell"] = "uniform"
    """uniform: all alike. late: (1 + power) t ^ power, more of times at which little is visible. bell: a normal law
    around center, cut off at 0 and 1."""
    power: Annotated[float, Field(gt=0)] | None = None
    """For late, the exponent; 1 unless given, which makes times near 1 twice as frequent as uniform ones."""
    center: Annotated[float, Field(ge=0, le=1)] | None = None
    """For bell, the most frequent time; 0.5 unless given."""
    width: Annotated[float, Field(gt=0)] | None = None
    """For bell, the standard deviation before it is cut off; 0.2 unless given."""
    even: Annotated[float, Field(gt=0, lt=1)] | None = None
    """For late and bell, the share of the sequences whose times are uniform still, so that no time is left out and none
    counts for more than 1 / even; 0.1 unless given."""
    weight: Literal["elbo", "density"] = "elbo"
    """elbo: a loss is divided by the density of its time; the objective is what it is with uniform times, the ELBO for
    one. density: it is not; frequent times count more, and the objective is another one."""

    @model_validator(mode="after")
    def _check(self) -> "TimeSettings":
        for name, densities in _DENSITIES.items():
            if getattr(self, name) is not None and self.density not in densities:
                raise ValueError(
                    f"{name} is for density {' or '.join(densities)}; got {getattr(self, name):g} with "
                    f"{self.density}: leave it out, or name the density"
                )
        if self.density == "uniform" and self.weight == "density":
            raise ValueError("weight density needs density late or bell: uniform times all count alike")
        return self
