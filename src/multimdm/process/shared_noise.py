"""Noise that all times of a path share: Gumbels for every process, and DUO's Gaussians for uniform states.

Shared-Gumbel paths, Eq. (gumbel_coupled_path), in O(1) work per position. argmax_z {log p_t(z | x_0) + g_z} with
Gumbels g_z fixed for all t is the first of several arrivals: argmin_z {e_z / p_t(z | x_0)} with exponentials
e_z = exp(-g_z). Only x_0, its designated state and the equally probable others compete, and the first of n equal others
is one exponential divided by n and a uniform index: three numbers and an index instead of V + M Gumbels.

Shared-Gaussian paths, Eq. (duo_gaussian_path). x_t is the argmax of a one-hot of x_0 scaled by a~ plus Gaussian noise
scaled by sqrt(1 - a~^2). Only the ratio snr = a~ / sqrt(1 - a~^2) matters: the clean token wins while snr exceeds the
best rival's noise minus its own. The transformation T of App. (conditional_entropy) turns the signal into alpha.

Shapes: the noise of a path has one number of each kind per position, [*shape]; signals and alphas are [*s], any shape.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from multimdm.process.draws import Generator, pick, uniform

_REACH = 9.0  # a standard normal beyond this has probability 1e-19
_STEP = 1 / 32  # the trapezoidal rule converges geometrically for these analytic integrands
_MAX_SNR = 20.0  # 1 - alpha is below 1e-38 there for every vocabulary in use


# --------------------------------------------------------------------- Gumbels


@dataclass(frozen=True)
class GumbelNoise:
    """The randomness of one shared-Gumbel path per position; it does not depend on the clean tokens."""

    clean: Float[Tensor, "*shape"]
    """Exponential of the clean token."""
    designated: Float[Tensor, "*shape"]
    """Exponential of the designated mask (unused by `Uniform`, whose target is the clean token)."""
    others: Float[Tensor, "*shape"]
    """The least exponential among the remaining states; infinite if there are none."""
    rival: Int64[Tensor, "*shape"]
    """Which of the remaining states has it: counted from the target, 0 .. n-2."""


def draw_noise(shape: tuple[int, ...], n: int, generator: Generator, device: torch.device | str | None) -> GumbelNoise:
    """Noise for paths whose target competes with n - 1 equally probable others."""
    u = uniform((*shape, 4), generator, device)
    e = -torch.log(u[..., :3])
    if n == 1:
        others = torch.full_like(e[..., 2], torch.inf)
        rival = torch.zeros_like(e[..., 2], dtype=torch.long)
    else:
        # the first of n - 1 exponentials, and which of them it is
        others = e[..., 2] / (n - 1)
        rival = pick(u[..., 3], n - 1)
    return GumbelNoise(e[..., 0], e[..., 1], others, rival)


def rival_state(target: Tensor, rival: Tensor, n: int) -> Tensor:
    """The `rival`-th of the n states other than the target."""
    return (target + 1 + rival) % n


def first_other(e: Float[Tensor, "*rows n"], target: Int64[Tensor, "*rows k"]) -> tuple[Tensor, Tensor]:
    """The least of the n exponentials of a row outside each of k targets, and its place counted from the target."""
    n = e.shape[-1]
    if n == 1:
        return torch.full_like(target, torch.inf, dtype=e.dtype), torch.zeros_like(target)
    two = torch.topk(e, 2, dim=-1, largest=False)
    # the least of all or, where that is the target's own, the second least
    hit = two.indices[..., :1] == target
    least = torch.where(hit, two.values[..., 1:], two.values[..., :1])
    state = torch.where(hit, two.indices[..., 1:], two.indices[..., :1])
    return least, (state - target - 1) % n


# ------------------------------------------------------------------- Gaussians


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
    # 1 - Phi(z)^(V-1), without cancellation, and phi(z) Phi(z)^(V-2)
    loses = -torch.expm1((vocab_size - 1) * log_below)
    overtaken = torch.exp(-(z**2) / 2 + (vocab_size - 2) * log_below) / math.sqrt(2 * math.pi)
    return Transformation(
        one_minus_alpha=vocab_size / (vocab_size - 1) * (phi * loses).sum(-1),
        slope=vocab_size * (phi * overtaken).sum(-1),
    )


def one_minus_alpha_of_snr(snr: Float64[Tensor, "*s"], vocab_size: int) -> Float64[Tensor, "*s"]:
    """1 - T(a~), accurate where alpha is nearly 1."""
    return transformation(snr, vocab_size).one_minus_alpha


def snr_of_alpha(
    alpha: Float64[Tensor, "*s"], one_minus_alpha: Float64[Tensor, "*s"], vocab_size: int
) -> Float64[Tensor, "*s"]:
    """The signal-to-noise ratio at which T equals alpha: 0 at alpha = 0, infinite at alpha = 1.

    Starts from a table and polishes by Newton's method on log(1 - alpha), which is concave in snr and keeps its
    digits where alpha is nearly 1.
    """
    table, log_lost = _table(vocab_size, alpha.device)
    goal = torch.log(one_minus_alpha).reshape(-1)
    # linear in log(1 - alpha) between two entries of the table
    position = torch.searchsorted(-log_lost, -goal).clamp(1, len(table) - 1)
    low = position - 1
    high = position
    fraction = ((log_lost[low] - goal) / (log_lost[low] - log_lost[high])).clamp(0.0, 1.0)
    snr = table[low] + fraction * (table[high] - table[low])
    # Newton: d log(1 - T) / d snr = -T' / (1 - T)
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
