"""Times that are not drawn evenly: more late ones, or more in the middle.

Objectives are integrals over numbers in (0, 1), from which they take their times. Numbers of a density q, with the loss
divided by q, have the same integral: another estimate of one objective. Without the division q is a weight of times,
and the objective another one.
"""

import math
from typing import Annotated, Literal, NamedTuple

import torch
from jaxtyping import Float64
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor

USUAL_POWER, USUAL_CENTER, USUAL_WIDTH, USUAL_EVEN = 1.0, 0.5, 0.2, 0.1
"""Of the densities, unless given."""
_OF = {"power": ("late",), "center": ("bell",), "width": ("bell",), "even": ("late", "bell")}
"""Which densities a parameter is for."""
_LEAST, _MOST = 2.0**-53, 1 - 2.0**-53


class Drawn(NamedTuple):
    """Numbers in (0, 1), and what the losses at them are multiplied by (None for 1)."""

    times: Float64[Tensor, " n"]
    weight: Float64[Tensor, " n"] | None


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class TimeSettings:
    """Which times are trained on."""

    density: Literal["uniform", "late", "bell"] = "uniform"
    """uniform: all alike. late: (1 + power) t ^ power, more of times at which little is visible. bell: a normal law
    around center, cut off at 0 and 1."""
    power: Annotated[float, Field(gt=0)] | None = None
    """Of late; 1 unless given: twice as many at the end."""
    center: Annotated[float, Field(ge=0, le=1)] | None = None
    """Of bell: the most frequent time; 0.5 unless given."""
    width: Annotated[float, Field(gt=0)] | None = None
    """Of bell: the standard deviation before it is cut off; 0.2 unless given."""
    even: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Of late and bell: the share of the sequences whose times are uniform still, so that no time is left out and none
    counts for more than 1 / even; 0.1 unless given."""
    weight: Literal["elbo", "density"] = "elbo"
    """elbo: a loss is divided by the density of its time; the objective is what it is with uniform times, the ELBO for
    one. density: it is not; frequent times count more, and the objective is another one."""

    @model_validator(mode="after")
    def _check(self) -> "TimeSettings":
        for name, densities in _OF.items():
            if getattr(self, name) is not None and self.density not in densities:
                raise ValueError(
                    f"{name} is for density {' or '.join(densities)}; got {getattr(self, name):g} with "
                    f"{self.density}: leave it out, or name the density"
                )
        if self.density == "uniform" and self.weight == "density":
            raise ValueError("weight density needs density late or bell: uniform times all count alike")
        return self

    def draw(self, u: Float64[Tensor, " n"]) -> Drawn:
        """Times of this density from numbers that are spread evenly over (0, 1); even numbers give even times."""
        if self.density == "uniform":
            return Drawn(u, None)
        even = USUAL_EVEN if self.even is None else self.even
        stays = u < even
        rest = ((u - even) / (1 - even)).clamp(0.0, 1.0)
        times = torch.where(stays, u / even, self._quantile(rest)).clamp(_LEAST, _MOST)
        return Drawn(times, None if self.weight == "density" else 1 / self.density_at(times))

    def density_at(self, t: Float64[Tensor, " n"]) -> Float64[Tensor, " n"]:
        """q(t), with the uniform share."""
        if self.density == "uniform":
            return torch.ones_like(t)
        even = USUAL_EVEN if self.even is None else self.even
        return even + (1 - even) * self._shape(t)

    def _quantile(self, u: Float64[Tensor, " n"]) -> Float64[Tensor, " n"]:
        """Where the density alone has the share u before it."""
        if self.density == "late":
            return u ** (1 / (1 + self._power))
        center, width = self._bell
        low, high = _normal_cdf(-center / width), _normal_cdf((1 - center) / width)
        return center + width * torch.special.ndtri(low + u * (high - low))

    def _shape(self, t: Float64[Tensor, " n"]) -> Float64[Tensor, " n"]:
        """The density alone."""
        if self.density == "late":
            return (1 + self._power) * t**self._power
        center, width = self._bell
        mass = _normal_cdf((1 - center) / width) - _normal_cdf(-center / width)
        return torch.exp(-(((t - center) / width) ** 2) / 2) / (math.sqrt(2 * math.pi) * width * mass)

    @property
    def _power(self) -> float:
        return USUAL_POWER if self.power is None else self.power

    @property
    def _bell(self) -> tuple[float, float]:
        """Center and width."""
        return (
            USUAL_CENTER if self.center is None else self.center,
            USUAL_WIDTH if self.width is None else self.width,
        )


def _normal_cdf(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
