"""What a loss needs of a row of log-probabilities, read in chunks of rows.

A row has V entries, but the losses use a handful of numbers of it: log p(x_0) and the M group sums T p, or
log p(x_0), log p(x_t) and one sum over the row. These functions compute them without keeping a second table of the
size of the log-probabilities, forward or backward: a chunk stays in the processor's cache. On a GPU with a compiler
`fused_readout.py` takes their place.

Shapes: N rows of V log-probabilities; x_0, x_t and odds [N]; M group sums per row.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from multimdm.process.assignment import Groups
from multimdm.process.places import chunk_rows, reading

_CHUNK_ENTRIES = 2**21
"""Entries of a chunk of rows on a CPU: 8 MB in float32."""


@reading
def picked(log_probs: Float[Tensor, "N V"], x_0: Int64[Tensor, " N"]) -> Float[Tensor, " N"]:
    """log p(x_0)."""
    return log_probs.gather(1, x_0[:, None])[:, 0]


@reading
def group_masses(
    log_probs: Float[Tensor, "N V"], x_0: Int64[Tensor, " N"], groups: Groups
) -> tuple[Float[Tensor, " N"], Float[Tensor, "N M"]]:
    """log p(x_0), and the group sums m = T p of eq. (psi_theta_simplified_app)."""
    return _GroupMasses.apply(log_probs, x_0, groups)


@reading
def log1p_sum(
    log_probs: Float[Tensor, "N V"],
    x_0: Int64[Tensor, " N"],
    x_t: Int64[Tensor, " N"],
    odds: Float[Tensor, " N"],
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"], Float[Tensor, " N"]]:
    """log p(x_0), log p(x_t), and the sum of log(1 + odds p(j)) over all tokens j but x_t."""
    return _Log1pSum.apply(log_probs, x_0, x_t, odds)


def _chunks(table: Tensor) -> Iterator[slice]:
    rows = chunk_rows(table.shape[-1], table, _CHUNK_ENTRIES, trained=True)
    for start in range(0, table.shape[0], rows):
        yield slice(start, start + rows)


class _GroupMasses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, log_probs, x_0, groups):  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(log_probs, x_0)
        ctx.groups = groups
        working = torch.promote_types(log_probs.dtype, torch.float32)
        masses = log_probs.new_empty((log_probs.shape[0], groups.num_masks), dtype=working)
        # m_j = sum of p over the tokens of mask j
        for rows in _chunks(log_probs):
            masses[rows] = groups.sum(log_probs[rows].to(working).exp())
        return log_probs.gather(1, x_0[:, None])[:, 0], masses

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_picked, grad_masses):  # pyright: ignore[reportIncompatibleMethodOverride]
        log_probs, x_0 = ctx.saved_tensors
        gradient = torch.empty_like(log_probs)
        # d m_j / d log p_a = p_a for the tokens a of mask j
        for rows in _chunks(log_probs):
            torch.exp(log_probs[rows], out=gradient[rows])
            ctx.groups.scale_(gradient[rows], grad_masses[rows])
        gradient.scatter_add_(1, x_0[:, None], grad_picked[:, None].to(gradient.dtype))
        return gradient, None, None


class _Log1pSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, log_probs, x_0, x_t, odds):  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(log_probs, x_0, x_t, odds)
        total = odds.new_empty(log_probs.shape[0])
        # sum_j log(1 + s_j), s_j = odds p(j)
        for rows in _chunks(log_probs):
            scaled = _scaled(log_probs[rows], x_t[rows], odds[rows])
            total[rows] = scaled.log1p_().sum(-1, dtype=odds.dtype)
        return log_probs.gather(1, x_0[:, None])[:, 0], log_probs.gather(1, x_t[:, None])[:, 0], total

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_0, grad_t, grad_total):  # pyright: ignore[reportIncompatibleMethodOverride]
        log_probs, x_0, x_t, odds = ctx.saved_tensors
        gradient = torch.empty_like(log_probs)
        # d log(1 + s_j) / d log p_j = s_j / (1 + s_j)
        for rows in _chunks(log_probs):
            scaled = _scaled(log_probs[rows], x_t[rows], odds[rows])
            gradient[rows] = scaled.div_(1 + scaled).mul_(grad_total[rows, None].to(scaled.dtype))
        for index, grad in ((x_0, grad_0), (x_t, grad_t)):
            gradient.scatter_add_(1, index[:, None], grad[:, None].to(gradient.dtype))
        return gradient, None, None, None


def _scaled(log_probs: Tensor, x_t: Tensor, odds: Tensor) -> Tensor:
    """odds p(j), with 0 at j = x_t."""
    working = torch.promote_types(log_probs.dtype, torch.float32)
    scaled = log_probs.to(working).exp().mul_(odds[:, None].to(working))
    return scaled.scatter_(1, x_t[:, None], 0.0)
