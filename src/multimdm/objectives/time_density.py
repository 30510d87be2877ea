"""Times that are not drawn evenly: more late ones, or more in the middle.

Objectives are integrals over numbers in (0, 1), from which they take their times. Numbers of a density q, with the loss
divided by q, have the same integral: another estimate of one objective. Without the division q is a weight of times,
and the objective another one.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from multimdm.objectives.settings import TimeSettings

USUAL_POWER, USUAL_CENTER, USUAL_WIDTH, USUAL_EVEN = 1.0, 0.5, 0.2, 0.1
"""Of the densities, unless given."""
_LEAST, _MOST = 2.0**-53, 1 - 2.0**-53


class Drawn(NamedTuple):
    """Numbers in (0, 1), and what the losses at them are multiplied by (None for 1)."""

    times: Float64[Tensor, " n"]
    weight: Float64[Tensor, " n"] | None


def draw_times(settings: TimeSettings, u: Float64[Tensor, " n"]) -> Drawn:
    """Times of this density from numbers that are spread evenly over (0, 1); even numbers give even times."""
    if settings.density == "uniform":
        return Drawn(u, None)
    even = _given(settings.even, USUAL_EVEN)
    stays = u < even
    rest = ((u - even) / (1 - even)).clamp(0.0, 1.0)
    times = torch.where(stays, u / even, _quantile(settings, rest)).clamp(_LEAST, _MOST)
    return Drawn(times, None if settings.weight == "density" else 1 / density_at(settings, times))


def density_at(settings: TimeSettings, t: Float64[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """q(t), with the uniform share."""
    if settings.density == "uniform":
        return torch.ones_like(t)
    even = _given(settings.even, USUAL_EVEN)
    return even + (1 - even) * _shape(settings, t)


def _quantile(settings: TimeSettings, u: Float64[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """Where the density alone has the share u before it."""
    if settings.density == "late":
        return u ** (1 / (1 + _given(settings.power, USUAL_POWER)))
    center, width = _bell(settings)
    low, high = _normal_cdf(-center / width), _normal_cdf((1 - center) / width)
    return center + width * torch.special.ndtri(low + u * (high - low))


def _shape(settings: TimeSettings, t: Float64[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """The density alone."""
    if settings.density == "late":
        return (1 + _given(settings.power, USUAL_POWER)) * t ** _given(settings.power, USUAL_POWER)
    center, width = _bell(settings)
    mass = _normal_cdf((1 - center) / width) - _normal_cdf(-center / width)
    return torch.exp(-(((t - center) / width) ** 2) / 2) / (math.sqrt(2 * math.pi) * width * mass)


def _bell(settings: TimeSettings) -> tuple[float, float]:
    """Center and width."""
    return _given(settings.center, USUAL_CENTER), _given(settings.width, USUAL_WIDTH)


def _given(value: float | None, usual: float) -> float:
    return usual if value is None else value


def _normal_cdf(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
