"""What changes in the course of training: the weight of the identification term, and the step size of distillation.

Imports no torch, so that the help of training commands is quick.
"""

import math
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

Share = Annotated[float, Field(ge=0, le=1)]
StepSize = Annotated[float, Field(ge=2.0**-30, le=1)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Ramp:
    """The weight of the identification term (Sec. 3.2): reconstruct first, then learn to tell the masks apart."""

    start: Share = 0.0
    """Up to this share of training the term has no weight."""
    end: Share = 0.0
    """From this share of training on it has its full weight."""
    shape: Literal["linear", "cosine"] = "linear"
    """How it grows between start and end: in proportion, or slowly at both ends."""
    weight: Annotated[float, Field(ge=0)] = 1.0
    """The full weight; 1 is the ELBO."""

    @model_validator(mode="after")
    def _check(self) -> "Ramp":
        if self.end < self.start:
            raise ValueError(f"end must not come before start; got start {self.start} and end {self.end}")
        return self

    def __call__(self, progress: float) -> float:
        """The weight when this share of training is done."""
        if progress >= self.end:
            return self.weight
        if progress <= self.start:
            return 0.0
        grown = (progress - self.start) / (self.end - self.start)
        return self.weight * (grown if self.shape == "linear" else (1 - math.cos(math.pi * grown)) / 2)


NO_RAMP = Ramp()
"""Full weight from the start: the ELBO."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Rounds:
    """How far apart the two times of a distillation step are: delta_k = delta * growth ^ floor(k / round).

    Training is divided into rounds of equal length.
    """

    delta: StepSize = 2.0**-9
    """The step size of the first round."""
    rounds: Annotated[int, Field(ge=1)] = 5
    """Equal parts of training; train.steps must be a multiple."""
    growth: Annotated[int, Field(ge=2, le=2**20)] = 2
    """The factor by which the step size grows from round to round."""
    schedule: Literal["dyadic", "linear"] = "dyadic"
    """dyadic: constant within a round. linear: growing in every step, to the same size at the end."""

    @model_validator(mode="after")
    def _check(self) -> "Rounds":
        most = math.floor(math.log(1 / self.delta, self.growth) + 1e-9) + 1
        if self.rounds > most:
            raise ValueError(
                f"the step size would exceed 1, the whole time, in the last of {self.rounds} rounds; begin with a "
                f"smaller delta than {self.delta:g}, or take at most {most} rounds"
            )
        return self

    @property
    def last(self) -> float:
        """The step size of the last round."""
        return self.delta * self.growth ** (self.rounds - 1)

    def round(self, step: int, steps: int) -> int:
        """Which round a step belongs to, from 0."""
        return min(step * self.rounds // steps, self.rounds - 1)

    def ends_round(self, step: int, steps: int) -> bool:
        """Whether the next step begins another round."""
        return self.round(step + 1, steps) > self.round(step, steps)

    def size(self, step: int, steps: int) -> float:
        """delta_k, the step size of this step; never above 1, whatever rounding does."""
        if self.schedule == "dyadic":
            return min(1.0, self.delta * self.growth ** self.round(step, steps))
        share = step / max(1, steps - 1)
        return min(1.0, self.delta + (self.last - self.delta) * share)

    def settings_at(self, step: int, steps: int) -> dict[str, float]:
        """Step size, and round from 1: for the records."""
        return {"delta": self.size(step, steps), "round": self.round(step, steps) + 1}
