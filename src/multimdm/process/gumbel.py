"""Shared-Gumbel paths, Eq. (gumbel_coupled_path), in O(1) work per position.

argmax_z {log p_t(z | x_0) + g_z} with Gumbels g_z fixed for all t is the first of several arrivals:
argmin_z {e_z / p_t(z | x_0)} with exponentials e_z = exp(-g_z). Only x_0, its designated state and the equally
probable others compete, and the first of n equal others is one exponential divided by n and a uniform index:
three numbers and an index instead of V + M Gumbels.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from multimdm.process.draws import Generator, pick, uniform


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
        others, rival = torch.full_like(e[..., 2], torch.inf), torch.zeros_like(e[..., 2], dtype=torch.long)
    else:
        others, rival = e[..., 2] / (n - 1), pick(u[..., 3], n - 1)
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
    hit = two.indices[..., :1] == target
    least = torch.where(hit, two.values[..., 1:], two.values[..., :1])
    state = torch.where(hit, two.indices[..., 1:], two.indices[..., :1])
    return least, (state - target - 1) % n
