"""How far a student's distribution p is from a teacher's q, row by row; the teacher's are constants.

    reverse_kl: sum p (log p - log q)      forward_kl: sum q (log q - log p)
    mse: sum (p - q)^2                     tvd: sum |p - q| / 2

With p = softmax(l), a divergence with the slopes f'_j in p_j has the gradient p_j (f'_j - sum p f') in l_j.

Shapes: n rows of V logits or log-probabilities; a divergence per row, [n].
"""

from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from multimdm._checks import require
from multimdm.objectives.settings import Divergence
from multimdm.process.places import fused, fuses, reading, widened


@reading
def divergence(kind: Divergence, logits: Float[Tensor, "n V"], teacher: Float[Tensor, "n V"]) -> Float[Tensor, " n"]:
    """How far p = softmax(logits) is from q with the log-probabilities `teacher`, in float32 or better.

    A token of probability zero adds nothing to a sum that it weighs; the divergence is infinite where the other
    distribution alone excludes a token.
    """
    _check_kind(kind)
    logits = widened(logits)
    return _Divergence.apply(logits, teacher.to(logits.dtype), kind)


@reading
def divergence_of_logits(
    kind: Divergence, logits: Float[Tensor, "n V"], teacher: Float[Tensor, "n V"]
) -> Float[Tensor, " n"]:
    """How far p = softmax(logits) is from q = softmax(teacher); on a GPU without tables of probabilities."""
    if not fuses(logits):
        return divergence(kind, logits, widened(teacher).log_softmax(-1))
    _check_kind(kind)
    return _FusedDivergence.apply(logits, teacher, kind)  # pyright: ignore[reportReturnType]


def _check_kind(kind: Divergence) -> None:
    require(kind in get_args(Divergence), f"divergence must be one of {', '.join(get_args(Divergence))}; got {kind!r}")


class _Divergence(torch.autograd.Function):
    """Value and gradient in one pass over the rows: only the gradient is kept for the backward pass."""

    @staticmethod
    def forward(ctx, logits, log_q, kind):  # pyright: ignore[reportIncompatibleMethodOverride]
        log_p = logits.log_softmax(-1)
        p = log_p.exp()
        if kind == "reverse_kl":  # sum p (log p - log q); gradient p (log p - log q - value)
            difference = log_p.sub_(log_q).masked_fill_(p == 0, 0.0)
            value = (p * difference).sum(-1)
            gradient = difference.sub_(value[:, None]).mul_(p)
        elif kind == "forward_kl":  # sum q (log q - log p); gradient p - q
            q = log_q.exp()
            difference = (log_q - log_p).masked_fill_(q == 0, 0.0)
            value = (q * difference).sum(-1)
            gradient = p.sub_(q)
        else:  # of a sum of f(p - q), with slopes f': gradient p (f' - sum p f')
            difference = p - log_q.exp()
            if kind == "mse":
                value = difference.square().sum(-1)
                slope = difference.mul_(2)
            elif kind == "tvd":
                value = difference.abs().sum(-1) / 2
                slope = difference.sign_().div_(2)
            else:
                raise ValueError(f"divergence {kind!r} has no value and slope here")
            gradient = slope.sub_((p * slope).sum(-1, keepdim=True)).mul_(p)
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        (gradient,) = ctx.saved_tensors
        return gradient * grad[:, None], None, None


class _FusedDivergence(torch.autograd.Function):
    """One pass over both tables for the value, one more for the gradient, and nothing of their size between."""

    @staticmethod
    def forward(ctx, logits, teacher, kind):  # pyright: ignore[reportIncompatibleMethodOverride]
        value, *rest = _value(logits, teacher, kind)
        ctx.kind = kind
        ctx.save_for_backward(logits, teacher, *rest)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        return _slope(*ctx.saved_tensors, grad, ctx.kind), None, None


@fused
def _value(logits: Tensor, teacher: Tensor, kind: Divergence) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The divergence, both log-sums, and sum p f' for the gradient p (f' - sum p f'), up to what cancels there."""
    log_sum = widened(logits).logsumexp(-1)
    teacher_sum = widened(teacher).logsumexp(-1)
    log_p = _log_probs(logits, log_sum)
    log_q = _log_probs(teacher, teacher_sum)
    p = log_p.exp()
    q = log_q.exp()
    match kind:
        case "reverse_kl":  # sum p (log p - log q), which is sum p f' as well
            value = (p * torch.where(p == 0, 0.0, log_p - log_q)).sum(-1)
            return value, log_sum, teacher_sum, value
        case "forward_kl":  # sum q (log q - log p); its slope p - q has no such sum
            value = (q * torch.where(q == 0, 0.0, log_q - log_p)).sum(-1)
            return value, log_sum, teacher_sum, torch.zeros_like(value)
        case "mse":  # sum (p - q)^2, f' = 2 (p - q)
            value = (p - q).square().sum(-1)
            centre = (p * 2 * (p - q)).sum(-1)
        case "tvd":  # sum |p - q| / 2, f' = sign(p - q) / 2
            value = (p - q).abs().sum(-1) / 2
            centre = (p * (p - q).sign() / 2).sum(-1)
    return value, log_sum, teacher_sum, centre


@fused
def _slope(
    logits: Tensor,
    teacher: Tensor,
    log_sum: Tensor,
    teacher_sum: Tensor,
    centre: Tensor,
    grad: Tensor,
    kind: Divergence,
) -> Tensor:
    """The gradient p (f' - sum p f') in the logits; `centre` is what `_value` gives for sum p f'."""
    log_p = _log_probs(logits, log_sum)
    log_q = _log_probs(teacher, teacher_sum)
    p = log_p.exp()
    q = log_q.exp()
    match kind:
        case "reverse_kl":  # p (log p - log q - value)
            slope = p * (torch.where(p == 0, 0.0, log_p - log_q) - centre[:, None])
        case "forward_kl":  # p - q
            slope = p - q
        case "mse":  # p (2 (p - q) - sum p f')
            slope = p * (2 * (p - q) - centre[:, None])
        case "tvd":  # p (sign(p - q) / 2 - sum p f')
            slope = p * ((p - q).sign() / 2 - centre[:, None])
    return (slope * grad[:, None]).to(logits.dtype)


def _log_probs(logits: Tensor, log_sum: Tensor) -> Tensor:
    return widened(logits) - log_sum[:, None]
