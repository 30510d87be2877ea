"""The map to logits and what follows it, in chunks of rows, with the gradient taken in the same pass.

For V = 50,257 a table of logits is the largest tensor of a training step, and its gradient another. Here rows are taken
in chunks: mapped to logits (several chunks at once on a CPU), reduced (to a loss, to samples, to anything small) and
differentiated before the next ones are touched. Only sums survive: the gradients of the features, the weight and the
bias.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from multimdm.process.places import TRAINED_ON_A_GPU, at_home, chunk_rows

_CHUNK_ENTRIES = 2**22
"""Entries of a chunk of logits that is reduced and differentiated on a CPU: 16 MB in float32, as are its tables."""
_READ_TOGETHER = 2
"""Chunks that are reduced at once on a CPU where nothing is differentiated, so that tables are fewer."""
_MULTIPLIED_TOGETHER = 4
"""Chunks whose products with the head's matrix are one on a CPU: products of few rows are slow. One table holds them,
of logits at first, then of their slopes; all other tables are a chunk's."""

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
        # That of the weight, the largest by far, is written by the first rows and need not be zero before.
        begin = torch.zeros_like, torch.empty_like, torch.zeros_like
        gradients = [new(x) if need else None for new, x, need in zip(begin, inputs, needs, strict=True)]
        rows_multiplied, rows_reduced = _rows_at_once(weight.shape[0], features, wants_gradient)
        parts: list[tuple[Tensor, ...]] = []
        matrix = None
        begun = False
        for start in range(0, max(1, len(features)), rows_multiplied):
            rows = slice(start, min(start + rows_multiplied, len(features)))
            logits = F.linear(features[rows], weight, bias)
            slope = _reduced(logits, rows, rows_reduced, reduce, wants_gradient, parts)
            if slope is not None:
                matrix = weight.to(slope.dtype) if matrix is None else matrix  # once: autocast's own copy is its secret
                _add_gradients(gradients, slope, features, matrix, rows, begun)
                begun = True
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


def _rows_at_once(vocab_size: int, features: Tensor, wants_gradient: bool) -> tuple[int, int]:
    """How many rows are multiplied by the head's matrix together, and how many of these are reduced at once."""
    on_a_gpu = features.is_cuda or _as_on_a_gpu.get()
    entries = TRAINED_ON_A_GPU if _as_on_a_gpu.get() else _CHUNK_ENTRIES * (1 if wants_gradient else _READ_TOGETHER)
    at_once = chunk_rows(vocab_size, features, entries, wants_gradient)
    return at_once * (_MULTIPLIED_TOGETHER if wants_gradient and not on_a_gpu else 1), at_once


def _reduced(
    logits: Tensor, rows: slice, at_once: int, reduce: Reduce, wants_gradient: bool, parts: list[tuple[Tensor, ...]]
) -> Tensor | None:
    """Reduce the logits of these rows, so many at once, and add what is kept to `parts`.

    The result is the slope of the losses in the logits, None if there is none. That of several chunks is written over
    the logits.
    """
    whole = len(logits) <= at_once
    slope = None
    for first in range(0, max(1, len(logits)), at_once):
        chunk = logits if whole else logits[first : first + at_once].detach()
        with torch.set_grad_enabled(wants_gradient):
            chunk.requires_grad_(wants_gradient)
            result = reduce(chunk, slice(rows.start + first, rows.start + first + len(chunk)))
        result = result if isinstance(result, tuple) else (result,)
        has_slope = wants_gradient and _is_loss(result[0]) and result[0].requires_grad
        part = torch.autograd.grad(result[0], chunk)[0] if has_slope else None
        kept = (at_home(x.detach()) for x in result)
        parts.append(tuple(kept) if whole or not wants_gradient else tuple(_apart(x, logits) for x in kept))
        if whole:
            slope = part
        elif wants_gradient:
            logits[first : first + at_once] = 0.0 if part is None else part
            slope = logits if has_slope else slope
    return slope


def _apart(x: Tensor, logits: Tensor) -> Tensor:
    """`x` with memory of its own: that of the logits is written over."""
    # By their storages and not by addresses, which tensors without contents (`--dry-run`) do not have.
    return x.clone() if x.untyped_storage()._cdata == logits.untyped_storage()._cdata else x


def _add_gradients(
    gradients: list[Tensor | None], slope: Tensor, features: Tensor, matrix: Tensor, rows: slice, begun: bool
) -> None:
    """Add the gradients of the loss of these rows in features, weight and bias, where wanted; `matrix` is the weight in
    the dtype of `slope`.

    Unless other rows have `begun`, the weight's gradient is written over and not added to.
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
