"""Two states of one sequence, at times s < t: how their noise is tied together.

Consistency distillation compares predictions at x_s and x_t. What it can learn depends on how much x_t tells of x_s, so
the tie is a choice: one shared path (Gumbel, Gaussian), the forward chain (Markov), or nothing but the clean text.

Shapes: B sequences of L positions, x_0, x_s and x_t [B, L], s and t [B].
"""

from dataclasses import replace
from typing import NamedTuple, get_args

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.objectives.settings import Coupling
from multimdm.process import Generator, Process
from multimdm.process.base import Ids
from multimdm.process.schedule import per_position
from multimdm.process.shared_noise import GumbelNoise


class Pair(NamedTuple):
    """States at s and at t."""

    x_s: Int64[Tensor, "B L"]
    x_t: Int64[Tensor, "B L"]


def couple(
    process: Process,
    x_0: Int64[Tensor, "B L"],
    s: Float64[Tensor, " B"],
    t: Float64[Tensor, " B"],
    coupling: Coupling,
    generator: Generator = None,
    reveal_apart: bool = False,
) -> Pair:
    """x_s and x_t, each with its own marginal p(. | x_0).

    gumbel: Eq. (gumbel_coupled_path); gaussian: DUO's path, for `Uniform` only; markov: x_t drawn from x_s by the
    forward transition; independent: given x_0, nothing is shared.

    Given x_0 and that x_t is a mask, whether the token shows at s depends on the mask along gumbel paths of several
    masks, and along no others. With `reveal_apart` it does not there either (`path_revealed_apart`).
    """
    require(
        coupling in get_args(Coupling), f"coupling must be one of {', '.join(get_args(Coupling))}; got {coupling!r}"
    )
    if coupling == "gumbel" and reveal_apart and process.num_masks > 1:
        noise = process.noise(x_0.shape, generator, x_0.device)
        return Pair(path_revealed_apart(process, x_0, noise, s), path_revealed_apart(process, x_0, noise, t))
    if coupling in ("gumbel", "gaussian"):
        return Pair(*process.couple(x_0, torch.stack([s, t]), generator, noise=coupling))
    # x_s ~ p_s(. | x_0), then x_t ~ p_{t|s}(. | x_s) or, by noise of its own, x_t ~ p_t(. | x_0)
    x_s = process.corrupt(x_0, s, generator)
    if coupling == "markov":
        return Pair(x_s, process.transition_sample(x_s, s, t, generator))
    return Pair(x_s, process.corrupt(x_0, t, generator))


def path_revealed_apart(
    process: Process, x_0: Ids, noise: GumbelNoise, t: Float64[Tensor, " B"]
) -> Int64[Tensor, "*shape"]:
    """x_t = x_0 while exp(-e_{x_0}) < alpha_t, then argmax_m {log r_t(m | x_0) + g_m} over the masks m.

    Along Eq. (gumbel_coupled_path) the token runs against the masks, so that a token which is left early was probably
    left for a strong designated mask: who looks only at positions that are masked at an earlier time selects. Here the
    token's own exponential decides alone when it is left. exp(-e_{x_0}) is uniform and independent of the masks'
    Gumbels: every x_t has the law p_t(. | x_0), and given x_0 the mask at t and whether the token shows at s are
    independent.
    """
    alpha_t = process.schedule(per_position("t", t, x_0)).alpha
    never = torch.full_like(noise.clean, torch.inf)
    mask = process.path(x_0, replace(noise, clean=never), t)
    return torch.where(torch.exp(-noise.clean) < alpha_t, x_0.long(), mask)
