"""The Gaussian representation of uniform-state paths (DUO), Eq. (duo_gaussian_path).

x_t is the argmax of a one-hot of x_0 scaled by a~ plus Gaussian noise scaled by sqrt(1 - a~^2), the noise shared by
all times. Only the ratio snr = a~ / sqrt(1 - a~^2) matters: the clean token wins while snr exceeds the best rival's
noise minus its own. The transformation T of App. (conditional_entropy) turns the signal into alpha.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from multimdm._checks import check_integer
from multimdm.process.draws import Generator, pick, uniform

_REACH = 9.0  # a standard normal beyond this has probability 1e-19
_STEP = 1 / 32  # the trapezoidal rule converges geometrically for these analytic integrands
_MAX_SNR = 20.0  # 1 - alpha is below 1e-38 there for every vocabulary in use


@dataclass(frozen=True)
class GaussianNoise:
    """The randomness of one shared-Gaussian path per position; it does not depend on the clean tokens."""

    clean: Float[Tensor, "*shape"]
    """The clean token's own Gaussian."""
    others: Float[Tensor, "*shape"]
    """The largest of the V - 1 other Gaussians."""
    rival: Int64[Tensor, "*shape"]
    """Which of the others has it: counted from the clean token, 0 .. V-2."""


def draw_gaussian_noise(
    shape: tuple[int, ...], V: int, generator: Generator, device: torch.device | str | None
) -> GaussianNoise:
    """Noise for paths on V tokens: a Gaussian, and the largest of V - 1 others through its distribution function."""
    u = uniform((*shape, 3), generator, device)
    upper_tail = -torch.expm1(torch.log(u[..., 1]) / (V - 1))  # 1 - u^(1/(V-1)), without cancellation
    return GaussianNoise(
        clean=torch.special.ndtri(u[..., 0]),
        others=-torch.special.ndtri(upper_tail),
        rival=pick(u[..., 2], V - 1),
    )


@dataclass(frozen=True)
class Transformation:
    """T at a signal-to-noise ratio, with its derivative."""

    one_minus_alpha: Float64[Tensor, "*s"]
    """1 - T, accurate where alpha is nearly 1."""
    slope: Float64[Tensor, "*s"]
    """dT / d snr > 0."""


def transformation(snr: Float64[Tensor, "*s"], vocab_size: int) -> Transformation:
    """1 - T = V/(V-1) int phi(y) (1 - Phi(y+snr)^(V-1)) dy and T' = V int phi(y) phi(y+snr) Phi(y+snr)^(V-2) dy."""
    y, phi = _nodes(snr.device)
    z = y + snr[..., None]
    log_below = torch.special.log_ndtr(z)
    loses = -torch.expm1((vocab_size - 1) * log_below)
    overtaken = torch.exp(-(z**2) / 2 + (vocab_size - 2) * log_below) / math.sqrt(2 * math.pi)
    return Transformation(
        one_minus_alpha=vocab_size / (vocab_size - 1) * (phi * loses).sum(-1),
        slope=vocab_size * (phi * overtaken).sum(-1),
    )


def one_minus_alpha_of_snr(snr: Float64[Tensor, "*s"], vocab_size: int) -> Float64[Tensor, "*s"]:
    """1 - T(a~), accurate where alpha is nearly 1."""
    return transformation(snr, vocab_size).one_minus_alpha


def alpha_of_signal(signal: Float64[Tensor, "*s"], vocab_size: int) -> Float64[Tensor, "*s"]:
    """alpha = T(a~) = V/(V-1) (int phi(z - snr) Phi(z)^(V-1) dz - 1/V) for the Gaussian signal a~ in [0, 1)."""
    check_integer("vocab_size", vocab_size, 2)
    return 1 - one_minus_alpha_of_snr(signal / torch.sqrt((1 - signal) * (1 + signal)), vocab_size)


def signal_of_alpha(alpha: Float64[Tensor, "*s"], vocab_size: int) -> Float64[Tensor, "*s"]:
    """The inverse of T: the Gaussian signal a~ whose argmax path has visibility alpha."""
    snr = snr_of_alpha(alpha, 1 - alpha, vocab_size)
    return torch.where(torch.isinf(snr), 1.0, snr / torch.sqrt(1 + snr**2))


def snr_of_alpha(
    alpha: Float64[Tensor, "*s"], one_minus_alpha: Float64[Tensor, "*s"], vocab_size: int
) -> Float64[Tensor, "*s"]:
    """The signal-to-noise ratio at which T equals alpha: 0 at alpha = 0, infinite at alpha = 1.

    Starts from a table and polishes by Newton's method on log(1 - alpha), which is concave in snr and keeps its
    digits where alpha is nearly 1.
    """
    table, log_lost = _table(vocab_size, alpha.device)
    goal = torch.log(one_minus_alpha).reshape(-1)
    position = torch.searchsorted(-log_lost, -goal).clamp(1, len(table) - 1)
    low, high = position - 1, position
    fraction = ((log_lost[low] - goal) / (log_lost[low] - log_lost[high])).clamp(0.0, 1.0)
    snr = table[low] + fraction * (table[high] - table[low])
    for _ in range(4):
        value = transformation(snr, vocab_size)
        error = torch.log(value.one_minus_alpha) - goal
        snr = (snr + error * value.one_minus_alpha / value.slope).clamp(0.0, _MAX_SNR)
    snr = snr.reshape(alpha.shape)
    return torch.where(one_minus_alpha <= 0, torch.inf, torch.where(alpha <= 0, 0.0, snr))


def _nodes(device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes of the trapezoidal rule and the standard normal density there, times the step."""
    y = torch.arange(-_REACH, _REACH + _STEP / 2, _STEP, dtype=torch.float64, device=device)
    return y, torch.exp(-(y**2) / 2) / math.sqrt(2 * math.pi) * _STEP


@lru_cache(maxsize=16)
def _table(vocab_size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Values of snr and of log(1 - alpha), falling, from which the inverse starts."""
    snr = torch.linspace(0, _MAX_SNR, 1025, dtype=torch.float64, device=device)
    return snr, torch.log(one_minus_alpha_of_snr(snr, vocab_size))
