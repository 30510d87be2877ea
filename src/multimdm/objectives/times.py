"""Times of a batch: spread evenly, and then evenly or by another density over (0, 1).

Spread evenly, the integral over t has far less variance than with independent draws. Objectives are integrals over
numbers in (0, 1), from which they take their times. Numbers of a density q, with the loss divided by q, have the same
integral: another estimate of one objective. Without the division q is a weight of times, and the objective another one.

Shapes: one time per sequence, [n].
"""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from multimdm._checks import check_integer
from multimdm.objectives.settings import TimeSettings
from multimdm.process.draws import Generator, pick, uniform

_GOLDEN = (math.sqrt(5) - 1) / 2
_LEAST = 2.0**-53
_MOST = 1 - 2.0**-53
"""The bounds of times, strictly between 0 and 1."""
USUAL_POWER = 1.0
USUAL_CENTER = 0.5
USUAL_WIDTH = 0.2
USUAL_EVEN = 0.1
"""The parameters of the densities, unless given."""


# ---------------------------------------------------------------- spread evenly


def stratified_times(num: int, generator: Generator = None) -> Float64[Tensor, " num"]:
    """t_i = (k_i + u_i) / num: one time in each of `num` equal intervals, k_i = (i stride + r) mod num with a random r.

    The random r makes every single t_i uniform, so the estimate is unbiased whatever the order of the data. The stride
    is near the golden section: any run of neighbours, such as the part of one rank or of one step of gradient
    accumulation, is spread almost evenly too, and has about the same number of masks to predict.
    """
    check_integer("num", num, 1)
    u = uniform((num + 1,), generator, "cpu")
    interval = (torch.arange(num) * _stride(num) + pick(u[num], num)) % num
    return ((interval + u[:num]) / num).clamp(_LEAST, _MOST)  # the last one may round to 1


@lru_cache(maxsize=16)
def _stride(num: int) -> int:
    """The integer nearest to the golden section of num that shares no factor with it."""
    start = round(num * _GOLDEN)
    return min((k for k in range(1, num + 1) if math.gcd(k, num) == 1), key=lambda k: abs(k - start))


# ------------------------------------------------------------- another density


class Drawn(NamedTuple):
    """Numbers in (0, 1), and what the losses at them are multiplied by (None for 1)."""

    times: Float64[Tensor, " n"]
    weight: Float64[Tensor, " n"] | None


def draw_times(settings: TimeSettings, u: Float64[Tensor, " n"]) -> Drawn:
    """Times of this density from numbers that are spread evenly over (0, 1); even numbers give even times."""
    if settings.density == "uniform":
        return Drawn(u, None)
    even = _given(settings.even, USUAL_EVEN)
    # u < even: uniform; else the quantile of the shape at (u - even) / (1 - even)
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
    """The time before which a share u of the density lies, without the uniform share."""
    if settings.density == "late":
        return u ** (1 / (1 + _given(settings.power, USUAL_POWER)))
    center, width = _bell(settings)
    # Phi(low) + u (Phi(high) - Phi(low)), low and high the ends 0 and 1 in standard deviations from the center
    low = _normal_cdf(-center / width)
    high = _normal_cdf((1 - center) / width)
    return center + width * torch.special.ndtri(low + u * (high - low))


def _shape(settings: TimeSettings, t: Float64[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """The density at t, without the uniform share."""
    if settings.density == "late":
        return (1 + _given(settings.power, USUAL_POWER)) * t ** _given(settings.power, USUAL_POWER)
    center, width = _bell(settings)
    mass = _normal_cdf((1 - center) / width) - _normal_cdf(-center / width)
    return torch.exp(-(((t - center) / width) ** 2) / 2) / (math.sqrt(2 * math.pi) * width * mass)


def _bell(settings: TimeSettings) -> tuple[float, float]:
    """The center and the width of the bell."""
    return _given(settings.center, USUAL_CENTER), _given(settings.width, USUAL_WIDTH)


def _given(value: float | None, usual: float) -> float:
    return usual if value is None else value


def _normal_cdf(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
