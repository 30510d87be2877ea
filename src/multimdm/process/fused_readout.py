"""What a loss needs of a row of logits, in as few passes over the row as a GPU can do: `readout.py` is the reference.

With s the log-sum-exp of a row l, p_j = exp(l_j - s). A loss of log p(x_0) and of sums over the row has the gradient
    dL / dl_j = a_j - p_j S,   a_j = dL / d log p_j,   S = sum of all a_j,
and S is known from a few numbers per row. So the forward pass reads the logits, the backward pass reads them once more
and writes their gradient, and no table of log-probabilities is ever made.

Shapes: N rows of V logits; x_0, x_t and odds [N]; M group sums per row.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from multimdm.process.assignment import Groups
from multimdm.process.places import fused, fuses, reading, widened


def picked(logits: Float[Tensor, "N V"], x_0: Int64[Tensor, " N"]) -> Float[Tensor, " N"]:
    """log p(x_0)."""
    return _Picked.apply(logits, x_0)  # pyright: ignore[reportReturnType]


def group_masses(
    logits: Float[Tensor, "N V"], x_0: Int64[Tensor, " N"], groups: Groups
) -> tuple[Float[Tensor, " N"], Float[Tensor, "N M"]]:
    """log p(x_0), and the group sums m = T p of eq. (psi_theta_simplified_app)."""
    return _GroupMasses.apply(logits, x_0, groups)


def log1p_sum(
    logits: Float[Tensor, "N V"], x_0: Int64[Tensor, " N"], x_t: Int64[Tensor, " N"], odds: Float[Tensor, " N"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"], Float[Tensor, " N"]]:
    """log p(x_0), log p(x_t), and the sum of log(1 + odds p(j)) over all tokens j but x_t."""
    return _Log1pSum.apply(logits, x_0, x_t, odds)


@reading
def cross_entropy(
    logits: Float[Tensor, "N V"], clean: Int64[Tensor, " N"], reduction: Literal["none", "sum"]
) -> Float[Tensor, "..."]:
    """-log p of the clean tokens under softmax(logits), row by row or summed, in float32 or better.

    On a GPU it takes fewer passes over the rows than torch's own.
    """
    if not fuses(logits):
        return F.cross_entropy(widened(logits), clean, reduction=reduction)
    loss = -picked(logits, clean)
    return loss.sum() if reduction == "sum" else loss


# ------------------------------------------------------------------ log p(x_0)


class _Picked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, x_0):  # pyright: ignore[reportIncompatibleMethodOverride]
        log_p, log_sum = _read_picked(logits, x_0)
        ctx.save_for_backward(logits, x_0, log_sum)
        return log_p

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        return _slope_of_picked(*ctx.saved_tensors, grad), None


@fused
def _read_picked(logits: Tensor, x_0: Tensor) -> tuple[Tensor, Tensor]:
    # log p(x_0) = l_{x_0} - s
    log_sum = widened(logits).logsumexp(-1)
    return _at(x_0, logits) - log_sum, log_sum


@fused
def _slope_of_picked(logits: Tensor, x_0: Tensor, log_sum: Tensor, grad: Tensor) -> Tensor:
    # a_j = g 1{j = x_0}, S = g
    a = torch.where(_is(x_0, logits), grad[:, None], 0.0)
    slope = a - _probs(logits, log_sum) * grad[:, None]
    return slope.to(logits.dtype)


# ------------------------------------------------------------------ group sums


class _GroupMasses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, x_0, groups):  # pyright: ignore[reportIncompatibleMethodOverride]
        log_p, masses, log_sum = _read_masses(logits, x_0, groups.assignment[None], groups.num_masks, groups.whole)
        ctx.save_for_backward(logits, x_0, log_sum, masses, groups.assignment)
        return log_p, masses

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_picked, grad_masses):  # pyright: ignore[reportIncompatibleMethodOverride]
        *read, assignment = ctx.saved_tensors
        return _slope_of_masses(*read, assignment[None], grad_picked, grad_masses), None, None


@fused
def _read_masses(
    logits: Tensor, x_0: Tensor, assignment: Tensor, num_masks: int, whole: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    if whole is None:
        log_sum = widened(logits).logsumexp(-1)
        p = _probs(logits, log_sum)
        masses = p.new_zeros((len(p), num_masks)).index_add(1, assignment[0], p)
    else:  # the groups are columns of a matrix: one pass for the logarithms of their sums, whose sum is that of the row
        log_masses = widened(logits[:, :whole]).unflatten(-1, (-1, num_masks)).logsumexp(-2)
        rest = F.pad(widened(logits[:, whole:]), (0, num_masks - (logits.shape[1] - whole)), value=-torch.inf)
        log_masses = torch.logaddexp(log_masses, rest)
        log_sum = log_masses.logsumexp(-1)
        masses = torch.exp(log_masses - log_sum[:, None])
    return _at(x_0, logits) - log_sum, masses, log_sum


@fused
def _slope_of_masses(
    logits: Tensor,
    x_0: Tensor,
    log_sum: Tensor,
    masses: Tensor,
    assignment: Tensor,
    grad_picked: Tensor,
    grad_masses: Tensor,
) -> Tensor:
    # a_j = g 1{j = x_0} + p_j dL / dm_{mask of j}, S = g + sum_k m_k dL / dm_k
    S = grad_picked + (grad_masses * masses).sum(-1)
    of_mask = grad_masses[:, assignment[0]]  # dL / dm of the mask of every token
    at_clean = torch.where(_is(x_0, logits), grad_picked[:, None], 0.0)
    slope = _probs(logits, log_sum) * (of_mask - S[:, None]) + at_clean
    return slope.to(logits.dtype)


# ------------------------------------------------------- a sum of logarithms


class _Log1pSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, x_0, x_t, odds):  # pyright: ignore[reportIncompatibleMethodOverride]
        log_p_clean, log_p_state, total, saturation, log_sum = _read_log1p(logits, x_0, x_t, odds)
        ctx.save_for_backward(logits, x_0, x_t, odds, log_sum, saturation)
        return log_p_clean, log_p_state, total

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_0, grad_t, grad_total):  # pyright: ignore[reportIncompatibleMethodOverride]
        return _slope_of_log1p(*ctx.saved_tensors, grad_0, grad_t, grad_total), None, None, None


@fused
def _read_log1p(logits: Tensor, x_0: Tensor, x_t: Tensor, odds: Tensor) -> tuple[Tensor, ...]:
    """Also the sum of s / (1 + s), s = odds p(j): what the slopes of the logarithms add up to."""
    log_sum = widened(logits).logsumexp(-1)
    s = _scaled(logits, x_t, odds, log_sum)
    total = torch.log1p(s).sum(-1, dtype=odds.dtype)
    saturation = (s / (1 + s)).sum(-1, dtype=odds.dtype)
    return _at(x_0, logits) - log_sum, _at(x_t, logits) - log_sum, total, saturation, log_sum


@fused
def _slope_of_log1p(
    logits: Tensor,
    x_0: Tensor,
    x_t: Tensor,
    odds: Tensor,
    log_sum: Tensor,
    saturation: Tensor,
    grad_0: Tensor,
    grad_t: Tensor,
    grad_total: Tensor,
) -> Tensor:
    # a_j = g_0 1{j = x_0} + g_t 1{j = x_t} + g s_j / (1 + s_j), S = g_0 + g_t + g sum_j s_j / (1 + s_j)
    S = grad_0 + grad_t + grad_total * saturation
    s = _scaled(logits, x_t, odds, log_sum)
    a = grad_total[:, None].to(s.dtype) * (s / (1 + s))
    at_clean = torch.where(_is(x_0, logits), grad_0[:, None], 0.0)
    at_state = torch.where(_is(x_t, logits), grad_t[:, None], 0.0)
    slope = a + at_clean + at_state - _probs(logits, log_sum) * S[:, None].to(s.dtype)
    return slope.to(logits.dtype)


def _scaled(logits: Tensor, x_t: Tensor, odds: Tensor, log_sum: Tensor) -> Tensor:
    """odds p(j), with 0 at j = x_t."""
    s = _probs(logits, log_sum) * odds[:, None].to(log_sum.dtype)
    return torch.where(_is(x_t, logits), 0.0, s)


# --------------------------------------------------------------------- helpers
# Without shapes in their annotations: the compiler would trace the tests' checks of them.


def _probs(logits: Tensor, log_sum: Tensor) -> Tensor:
    return torch.exp(widened(logits) - log_sum[:, None])


def _at(token: Tensor, logits: Tensor) -> Tensor:
    return widened(logits.gather(1, token[:, None])[:, 0])


def _is(token: Tensor, logits: Tensor) -> Tensor:
    return torch.arange(logits.shape[1], device=logits.device) == token[:, None]
