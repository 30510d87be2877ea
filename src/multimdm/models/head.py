"""The map to logits and what follows it, in chunks of rows, with the gradient taken in the same pass.

For V = 50,257 a table of logits is the largest tensor of a training step, and its gradient another. Here each chunk of
rows is mapped to logits, reduced (to a loss, to samples, to anything small) and differentiated before the next one is
touched. Only sums survive: the gradients of the features, the weight and the bias.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from multimdm.process.places import TRAINED_ON_A_GPU, at_home, chunk_rows

_CHUNK_ENTRIES = 2**23
"""Entries of a chunk of logits on a CPU: 32 MB in float32."""

_as_on_a_gpu = ContextVar("as_on_a_gpu", default=False)

Reduce = Callable[[Tensor, slice], Tensor | tuple[Tensor, ...]]
"""(logits [n, V], which rows) -> what to keep of them.

The first result, if it is a floating number without dimensions, is a loss: it is summed over chunks and can be
differentiated. Everything else is kept without gradient: numbers are summed, tensors [n, ...] joined.
"""


def reduce_logits(
    features: Float[Tensor, "N d"], weight: Float[Tensor, "V d"], bias: Float[Tensor, " V"], reduce: Reduce
) -> Tensor | tuple[Tensor, ...]:
    """What `reduce` makes of logits = features weight^T + bias, without ever holding all of them."""
    results = _ReducedLogits.apply(features, weight, bias, reduce, torch.is_grad_enabled())
    return results if len(results) > 1 else results[0]


class _ReducedLogits(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features, weight, bias, reduce, grad_enabled):  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs = features, weight, bias
        # A frozen head, as under LoRA, gets none: its gradient is as large as itself.
        needs = [grad_enabled and need for need in ctx.needs_input_grad[:3]]
        wants_gradient = any(needs)
        gradients = [torch.zeros_like(x) if need else None for x, need in zip(inputs, needs, strict=True)]
        # That of the weight, the largest by far, is written by the first chunk and need not be zero before.
        gradients[1] = torch.empty_like(weight) if needs[1] else None
        entries = TRAINED_ON_A_GPU if _as_on_a_gpu.get() else _CHUNK_ENTRIES
        rows_per_chunk = chunk_rows(weight.shape[0], features, entries, wants_gradient)
        parts: list[tuple[Tensor, ...]] = []
        matrix = None
        begun = False
        for start in range(0, max(1, len(features)), rows_per_chunk):
            rows = slice(start, min(start + rows_per_chunk, len(features)))
            logits = F.linear(features[rows], weight, bias)
            with torch.set_grad_enabled(wants_gradient):
                logits.requires_grad_(wants_gradient)
                result = reduce(logits, rows)
            result = result if isinstance(result, tuple) else (result,)
            if wants_gradient and _is_loss(result[0]) and result[0].requires_grad:
                (slope,) = torch.autograd.grad(result[0], logits)
                matrix = weight.to(slope.dtype) if matrix is None else matrix  # once: autocast's own copy is its secret
                _add_gradients(gradients, slope, features, matrix, rows, begun)
                begun = True
            parts.append(tuple(at_home(x.detach()) for x in result))
        if gradients[1] is not None and not begun:
            gradients[1].zero_()
        ctx.gradients = gradients  # not `save_for_backward`: the backward pass scales them in place
        results = tuple(_join(column) for column in zip(*parts, strict=True))
        ctx.mark_non_differentiable(*(x for i, x in enumerate(results) if i > 0 or not _is_loss(x)))
        return results

    @staticmethod
    def backward(ctx, grad, *_):  # pyright: ignore[reportIncompatibleMethodOverride]
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError("the gradient of a reduced head can be taken once only: it is not kept")
        return *(None if gradient is None else gradient.mul_(grad) for gradient in gradients), None, None


@contextmanager
def chunks_as_on_a_gpu() -> Iterator[None]:
    """Divide rows into chunks as a GPU would, to count without one what a step takes there."""
    token = _as_on_a_gpu.set(True)
    try:
        yield
    finally:
        _as_on_a_gpu.reset(token)


def _add_gradients(
    gradients: list[Tensor | None], slope: Tensor, features: Tensor, matrix: Tensor, rows: slice, begun: bool
) -> None:
    """Add the gradients of a chunk's loss in features, weight and bias, where wanted; `matrix` is the weight in the
    dtype of `slope`.

    Unless another chunk has `begun`, the weight's gradient is written over and not added to.
    """
    of_features, of_weight, of_bias = gradients
    if of_features is not None:
        of_features[rows] = (slope @ matrix).to(features.dtype)
    if of_weight is not None:
        if slope.dtype == of_weight.dtype:
            of_weight.addmm_(slope.T, features[rows].to(slope.dtype), beta=float(begun))
        else:  # multiplied in the precision of autocast, summed in that of the weight
            product = slope.T @ features[rows].to(slope.dtype)
            of_weight.add_(product) if begun else of_weight.copy_(product)
    if of_bias is not None:
        of_bias += slope.sum(0, dtype=of_bias.dtype)


def _is_loss(x: Tensor) -> bool:
    return x.ndim == 0 and x.is_floating_point()


def _join(column: tuple[Tensor, ...]) -> Tensor:
    return torch.stack(column).sum(0) if column[0].ndim == 0 else torch.cat(column)
