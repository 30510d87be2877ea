"""How far a student's distributions are from a teacher's, row by row; the teacher's are constants."""

from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from multimdm.objectives.settings import Divergence
from multimdm.process.checks import require
from multimdm.process.precision import widened


def divergence(kind: Divergence, logits: Float[Tensor, "n V"], teacher: Float[Tensor, "n V"]) -> Float[Tensor, " n"]:
    """Of the distribution softmax(logits) from the one with the log-probabilities `teacher`, in float32 or better.

    A token of probability zero adds nothing to a sum that it weighs; the divergence is infinite where the other
    distribution alone excludes a token.
    """
    require(kind in get_args(Divergence), f"divergence must be one of {', '.join(get_args(Divergence))}; got {kind!r}")
    logits = widened(logits)
    return _Divergence.apply(logits, teacher.to(logits.dtype), kind)


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
                value, slope = difference.square().sum(-1), difference.mul_(2)
            else:
                value, slope = difference.abs().sum(-1) / 2, difference.sign_().div_(2)
            gradient = slope.sub_((p * slope).sum(-1, keepdim=True)).mul_(p)
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        (gradient,) = ctx.saved_tensors
        return gradient * grad[:, None], None, None
