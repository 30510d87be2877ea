"""Paths that end in a given noise string x_1, so that noise can be tied to data.

x_t is x_0 with probability alpha_t; else m(x_0) with probability beta_t; else x_1. With x_1 uniform and independent of
x_0 every marginal is that of `MultiMask`. With another joint law of (x_0, x_1), each of them still distributed as
before, the marginals of x_0 and x_1 are untouched while x_1 tells of x_0.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm.process.base import Ids
from multimdm.process.checks import check_ids, check_same_shape
from multimdm.process.draws import Generator, uniform
from multimdm.process.multimask import MultiMask
from multimdm.process.times import Time, check_order, check_time, per_position


@dataclass(frozen=True)
class Anchored:
    """The randomness of one path per position."""

    leave_token: Float64[Tensor, "*shape"]
    """The token is left when alpha falls below this number."""
    leave_mask: Float64[Tensor, "*shape"]
    """The designated mask is left when beta falls below this number."""
    end: Int64[Tensor, "*shape"]
    """x_1."""


def anchor(end: Ids, generator: Generator = None) -> Anchored:
    """Noise of paths that end in `end`."""
    u = uniform((*end.shape, 2), generator, end.device)
    return Anchored(u[..., 0], u[..., 1], end.long())


def anchored_state(process: MultiMask, x_0: Ids, noise: Anchored, t: Time) -> Int64[Tensor, "*shape"]:
    """x_t of the path from x_0 to `noise.end`."""
    check_ids("x_0", x_0, process.vocab_size)
    check_ids("end", noise.end, process.num_states)
    check_same_shape("x_0", x_0, "end", noise.end)
    check_time("t", t)
    v = process.schedule(per_position("t", t, x_0))
    mask = torch.where(noise.leave_mask < v.beta, process.designated_mask(x_0), noise.end)
    return torch.where(noise.leave_token < v.alpha, x_0.long(), mask)


def anchored_reverse_sample(
    process: MultiMask, clean: Ids, x_t: Ids, end: Ids, s: Time, t: Time, generator: Generator = None
) -> Int64[Tensor, "*shape"]:
    """x_s given x_t, x_1 = `end` and a hypothesis of the clean token, by one number per position.

    Revealed with probability (alpha_s - alpha_t) / (1 - alpha_t). A position that stays hidden and is at its own x_1
    goes to the designated mask with probability (beta_s - beta_t) / (1 - beta_t), else it stays; one that is elsewhere
    is at a designated mask, and stays there until it is revealed. A visible token stays; s = 0 leaves no mask.
    """
    check_ids("clean", clean, process.vocab_size)
    check_ids("x_t", x_t, process.num_states)
    check_same_shape("clean", clean, "x_t", x_t)
    check_same_shape("x_t", x_t, "end", end)
    check_order(s, t)
    between = process.schedule.between(per_position("s", s, x_t), per_position("t", t, x_t))
    at_s, at_t = (process.schedule(per_position(name, time, x_t)) for name, time in (("s", s), ("t", t)))
    u = uniform(x_t.shape, generator, x_t.device)
    left = ((u - between.reveal) / between.still_hidden).clamp(0.0, 1.0)  # uniform again, given that it stays hidden
    # 1 - beta_s / (1 - beta_t): from the complements, which are exact near t = 0
    enter = 1 - at_s.one_minus_beta / at_t.one_minus_beta
    mask = torch.where((x_t == end) & (left < enter), process.designated_mask(clean), x_t.long())
    x_s = torch.where(u < between.reveal, clean.long(), mask)
    return torch.where(process.active(x_t), x_s, x_t.long())


def agrees(process: MultiMask, x_t: Ids, end: Ids, tokens: Ids) -> Tensor:
    """Whether a token can be behind x_t on a path that ends in `end`: at another mask than x_1, only its own tokens."""
    return (x_t == end) | (process.designated_mask(tokens) == x_t)
