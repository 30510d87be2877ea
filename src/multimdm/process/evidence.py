"""p(x_t | x_0 = a) for every token a: what a state tells of its own clean token, as likelihoods.

It is the column of `marginal` that belongs to x_t, divided by its largest entry. Only the ratio of two numbers is ever
needed: tokens that explain x_t best have likelihood 1, and all others the same smaller one.

Shapes: x_t [*shape], likelihoods [*shape, V].
"""

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from multimdm.process.base import Ids, Process
from multimdm.process.checks import check_ids, check_same_shape
from multimdm.process.multimask import MultiMask
from multimdm.process.own_mask import others_factor
from multimdm.process.schedule import Time, check_time, per_position


def evidence(process: Process, x_t: Ids, t: Time) -> Float64[Tensor, "*shape V"]:
    """p_t(x_t | a) / max_b p_t(x_t | b), by token a. Eqs. (forward_marginal_single, uniform_forward_prelim).

    A visible token under masks is certain. A mask j explains its own tokens best, and the others less by the factor
    (1 - beta) / (M beta + 1 - beta); a uniform state explains itself, and the others less by (1 - alpha) /
    (V alpha + 1 - alpha).
    """
    check_ids("x_t", x_t, process.num_states)
    check_time("t", t)
    v = process.schedule(per_position("t", t, x_t))
    if isinstance(process, MultiMask):
        return _of_masks(process, x_t, others_factor(v, process.num_masks))
    # p_t(x_t | a) / p_t(x_t | x_t) = ((1 - alpha) / V) / (alpha + (1 - alpha) / V) for all a but x_t
    others = v.one_minus_alpha / (process.vocab_size * v.alpha + v.one_minus_alpha)
    return _best_and_others(_tokens(process, x_t) == x_t[..., None], others)


def tied_evidence(
    process: MultiMask, x_t: Ids, x_1: Ids, known: Bool[Tensor, "*shape"], t: Time
) -> Float64[Tensor, "*shape V"]:
    """p(x_t | a, x_1) up to a factor, by token a, on a path that ends in x_1 wherever that is known.

    x_t is m(a) with probability beta_t and else x_1. At a mask that is not x_1 only the tokens of that mask remain; at
    x_1 all others are less probable by the factor 1 - beta_t. Where x_1 is not known, it is uniform.
    """
    check_ids("x_t", x_t, process.num_states)
    check_same_shape("x_t", x_t, "x_1", x_1)
    check_time("t", t)
    v = process.schedule(per_position("t", t, x_t))
    unknown = others_factor(v, process.num_masks)
    return _of_masks(process, x_t, torch.where(known, torch.where(x_t == x_1, v.one_minus_beta, 0.0), unknown))


def _of_masks(process: MultiMask, x_t: Tensor, others: Tensor) -> Float64[Tensor, "*shape V"]:
    """At hidden positions by the mask; a visible token explains itself alone."""
    tokens = _tokens(process, x_t)
    hidden = process.active(x_t)
    explains = torch.where(hidden[..., None], process.designated_mask(tokens), tokens) == x_t[..., None]
    return _best_and_others(explains, torch.where(hidden, others, 0.0))


def _best_and_others(best: Tensor, others: Tensor) -> Float64[Tensor, "*shape V"]:
    return torch.where(best, 1.0, others[..., None])


def _tokens(process: Process, x_t: Tensor) -> Tensor:
    return torch.arange(process.vocab_size, device=x_t.device)
