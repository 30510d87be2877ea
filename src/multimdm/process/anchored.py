"""Paths that end in a given noise string x_1, so that noise can be tied to data.

x_t is x_0 with probability alpha_t; else m(x_0) with probability beta_t; else x_1. With x_1 uniform and independent of
x_0 every marginal is that of `MultiMask`. With another joint law of (x_0, x_1), each of them still distributed as
before, the marginals of x_0 and x_1 are untouched while x_1 tells of x_0.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from multimdm.process.base import Ids
from multimdm.process.checks import check_ids, check_same_shape
from multimdm.process.draws import Generator, uniform
from multimdm.process.mixture import Mixture
from multimdm.process.multimask import MultiMask
from multimdm.process.places import at_home, beside
from multimdm.process.precision import widened
from multimdm.process.terms import LossTerms
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
    u = uniform(x_t.shape, generator, x_t.device)
    left = ((u - between.reveal) / between.still_hidden).clamp(0.0, 1.0)  # uniform again, given that it stays hidden
    x_s = torch.where(u < between.reveal, clean.long(), anchored_remain(process, clean, x_t, end, s, t, left))
    return torch.where(process.active(x_t), x_s, x_t.long())


def anchored_remain(
    process: MultiMask, clean: Ids, x_t: Ids, end: Ids, s: Time, t: Time, u: Float64[Tensor, "*shape"]
) -> Int64[Tensor, "*shape"]:
    """x_s of a position that stays hidden, by one number each; at visible positions the result means nothing."""
    at_s, at_t = (process.schedule(per_position(name, time, x_t)) for name, time in (("s", s), ("t", t)))
    # (beta_s - beta_t) / (1 - beta_t), from the complements, which are exact near t = 0
    enter = 1 - at_s.one_minus_beta / at_t.one_minus_beta
    return torch.where((x_t == end) & (u < enter), process.designated_mask(clean), x_t.long())


def anchored_loss(
    process: MultiMask, log_probs: Float[Tensor, "N V"], x_0: Ids, x_t: Ids, end: Ids, t: Time
) -> LossTerms:
    """Both terms of the loss density of -log p(x_0 | x_1) at hidden positions, given log p(. | x_t, x_1), normalised.

    Back in time a path leaves x_1 for its token at the rate -alpha'/(1 - alpha), whatever the token, and for its
    designated mask, if that is another, at the rate b = -beta'/(1 - beta). The model leaves with the same rates for
    what it predicts. With pi_j the predicted probability of the tokens of mask j, the terms of the path measures'
    divergence are -alpha'/(1 - alpha) (-log p(x_0)), and at x_1 alone b (1 - pi_{x_1}) if m(x_0) = x_1, else
    b (-pi_{x_1} - log pi_{m(x_0)}). Their time integral bounds -log p(x_0 | x_1).
    """
    v = process.schedule(per_position("t", t, x_t))
    home = process.designated_mask(x_0)
    groups = process.designated_mask(torch.arange(process.vocab_size, device=log_probs.device)) - process.vocab_size
    masses = log_probs.new_zeros((*x_0.shape, process.num_masks)).index_add(-1, groups, log_probs.exp())
    masses = at_home(masses)
    own, others = (masses.gather(-1, (mask - process.vocab_size)[..., None])[..., 0] for mask in (end, home))
    leaves = torch.where(home == end, 1 - own, -own - others.log())
    identification = torch.where(x_t == end, -v.d_beta / v.one_minus_beta * leaves, 0.0)
    picked = at_home(log_probs.gather(-1, beside(x_0, log_probs)[..., None])[..., 0])
    return LossTerms(v.d_alpha / v.one_minus_alpha * picked, identification)


def shown_with_end(
    process: MultiMask, x_t: Ids, end: Ids, given: Bool[Tensor, "*shape"] | None = None
) -> Tensor | Mixture:
    """What a network is shown: x_t, and beside it x_1 at every position if the process says so.

    Mask j as noise is the id V + M + j, that of a row of its own: the network can tell it from j as a state. Where a
    token is `given`, the noise behind it is not known, and the weight of its row is 0.
    """
    if not process.noise_shown:
        return x_t
    ids = torch.stack([x_t.long(), end + process.num_masks], dim=-1)
    weights = torch.ones(ids.shape, device=ids.device)
    if given is not None:
        weights[..., 1] = (~given).to(weights.dtype)
    return Mixture(weights, ids)


def told_of_end(
    process: MultiMask, logits: Float[Tensor, "*shape V"], x_t: Ids, end: Ids, t: Time
) -> Float[Tensor, "*shape V"]:
    """The network's prediction with what x_1^l adds to it, at hidden positions, as logits in float32 or better.

    To a network that is shown the noise nothing is added. One that sees x_t alone gave p(x_0^l | x_t), and had to leave
    open whether x_t^l = j is the designated mask or the end of the path. Who knows x_1^l multiplies its prediction by
    p(x_t^l | a, x_1^l) / p(x_t^l | a), by Bayes' rule: at another mask than x_1 only the tokens of that mask remain; at
    x_1 the tokens of j are divided by 1 + (M - 1) beta_t. This is exact where x_1^l is uniform given x_0; what x_1
    tells at the other positions is not made use of.
    """
    logits = widened(logits)
    if process.num_masks == 1 or process.noise_shown:
        return logits
    beta = process.schedule(per_position("t", t, x_t)).beta
    own = torch.where(x_t == end, -torch.log1p((process.num_masks - 1) * beta), 0.0).to(logits.dtype)
    others = torch.where(x_t == end, 0.0, -torch.inf).to(logits.dtype)
    tokens = torch.arange(process.vocab_size, device=logits.device)
    explained = process.designated_mask(tokens) == beside(x_t, logits)[..., None]
    return logits + torch.where(explained, beside(own, logits)[..., None], beside(others, logits)[..., None])
