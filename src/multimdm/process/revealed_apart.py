"""Shared-Gumbel paths on which the time of the reveal tells nothing of the mask.

Along Eq. (gumbel_coupled_path) the token runs against the masks, so that a token which is left early was probably left
for a strong designated mask: who looks only at positions that are masked at an earlier time selects. Here the token's
own exponential decides alone when it is left, and the masks run among themselves.
"""

from dataclasses import replace

import torch
from jaxtyping import Int64
from torch import Tensor

from multimdm.process.base import Ids
from multimdm.process.gumbel import GumbelNoise
from multimdm.process.multimask import MultiMask
from multimdm.process.times import Time, per_position


def path_revealed_apart(process: MultiMask, x_0: Ids, noise: GumbelNoise, t: Time) -> Int64[Tensor, "*shape"]:
    """x_t = x_0 while exp(-e_{x_0}) < alpha_t, then argmax_m {log r_t(m | x_0) + g_m} over the masks m.

    exp(-e_{x_0}) is uniform and independent of the masks' Gumbels: every x_t has the law p_t(. | x_0), and given x_0
    the mask at t and whether the token shows at s are independent.
    """
    alpha_t = process.schedule(per_position("t", t, x_0)).alpha
    never = torch.full_like(noise.clean, torch.inf)
    mask = process.path(x_0, replace(noise, clean=never), t)
    return torch.where(torch.exp(-noise.clean) < alpha_t, x_0.long(), mask)
