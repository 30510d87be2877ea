"""The curriculum of multi-mask training (Sec. 3.2): reconstruct first, then learn to tell the masks apart."""

import math
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Ramp:
    """The weight of the identification term in the course of training."""

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
