"""Random draws that are exact in the tail.

A float32 uniform resolves 2^-24: Gumbel noise made from it cuts off rare tokens and silently lowers the
temperature. All draws here start from float64 uniforms, and a categorical draw takes one of them per position
(inverse of the distribution function), not one per token.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Float64, Int64, Shaped
from torch import Tensor

from multimdm._checks import require
from multimdm.process.checks import check_weights
from multimdm.process.fusing import fused, fuses
from multimdm.process.places import beside, exact, widened
from multimdm.process.streams import Streams

Generator = torch.Generator | Streams | None
"""Where randomness comes from: torch's own generator, a given one, or one stream per sequence."""

_BLOCK = 256


def uniform(shape: Sequence[int], generator: Generator = None, device: torch.device | str | None = None) -> Tensor:
    """float64 numbers in (0, 1): open at both ends, so that logarithms are finite."""
    if isinstance(generator, Streams):
        return generator.uniform(shape, device)
    require(
        generator is None or isinstance(generator, torch.Generator),
        f"generator must be None, a torch.Generator or Streams; got {generator!r}",
    )
    source = generator.device if generator is not None else device
    u = torch.rand(tuple(shape), generator=generator, dtype=torch.float64, device=source)
    return u.clamp_min_(2.0**-54).to(device)  # rand can give 0: take the middle of that cell


def exponential(shape: Sequence[int], generator: Generator = None, device: torch.device | str | None = None) -> Tensor:
    """Standard exponentials in float64, never zero. Minus its logarithm is a standard Gumbel."""
    return -torch.log(uniform(shape, generator, device))


def pick(u: Tensor, num: int) -> Tensor:
    """The integer floor(u * num) in 0..num-1: uniform if u is."""
    return (u * num).long().clamp_max_(num - 1)


def categorical(weights: Shaped[Tensor, "*rows V"], generator: Generator = None) -> Int64[Tensor, "*rows"]:
    """One index per row, drawn in proportion to the weights (which need not sum to one)."""
    return invert_cdf(weights, uniform(weights.shape[:-1], generator, weights.device))


def invert_cdf(weights: Shaped[Tensor, "*rows V"], u: Float64[Tensor, "*rows"]) -> Int64[Tensor, "*rows"]:
    """The index at which the running sum of the weights passes u times their total.

    Two levels: blocks are summed in the weights' own precision, which costs each a relative error of rounding and
    cuts off nothing; running sums, where rare tokens would drown, are float64.
    """
    require(
        weights.shape[:-1] == u.shape,
        f"weights must have one row per number in u, {list(u.shape)}; got shape {list(weights.shape)}",
    )
    check_weights("weights", weights)
    flat = weights.reshape(-1, weights.shape[-1])
    target = u.reshape(-1)
    V = flat.shape[-1]
    whole = V // _BLOCK * _BLOCK
    summed_in = torch.promote_types(weights.dtype, torch.float32)
    parts = flat[:, :whole].unflatten(-1, (whole // _BLOCK, _BLOCK)), flat[:, None, whole:]
    sums = exact(torch.cat([part.sum(-1, dtype=summed_in) for part in parts], dim=-1))
    return _inside(flat, sums, target, lambda weight: weight).reshape(u.shape)


def draw_token(logits: Float[Tensor, "n V"], u: Float64[Tensor, " n"]) -> Int64[Tensor, " n"]:
    """The index at which the running sum of softmax(logits) passes u; on a GPU without a table of probabilities."""
    if not fuses(logits):
        return invert_cdf(torch.softmax(widened(logits), -1), u)
    sums, log_sum = _block_sums(logits)
    return _inside(logits, sums.double(), u, lambda part: torch.exp(widened(part) - log_sum[:, None]))


@fused
def _block_sums(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The probabilities of blocks of tokens, and the log-sum of the row."""
    log_sum = widened(logits).logsumexp(-1)
    V = logits.shape[-1]
    whole = V // _BLOCK * _BLOCK
    parts = logits[:, :whole].unflatten(-1, (whole // _BLOCK, _BLOCK)), logits[:, None, whole:]
    sums = [torch.exp(widened(part) - log_sum[:, None, None]).sum(-1) for part in parts]
    return torch.cat(sums, dim=-1), log_sum


def _inside(table: Tensor, sums: Tensor, u: Tensor, weights: Callable[[Tensor], Tensor]) -> Tensor:
    """The block in which u times the total falls, and the column inside it: `weights` are those of table entries."""
    V = table.shape[-1]
    block, rest = _search(sums, u * sums.sum(-1))
    columns = block[:, None] * _BLOCK + torch.arange(_BLOCK, device=block.device)
    inside = exact(weights(table.gather(1, beside(columns.clamp_max(V - 1), table)))).masked_fill(columns >= V, 0.0)
    column, _ = _search(inside, rest)
    return (block * _BLOCK + column).clamp_max_(V - 1)


def _search(weights: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The first column whose running sum exceeds `target`, and how far `target` lies inside it."""
    running = weights.cumsum(-1)
    total = running[:, -1]
    # Rounding may push the target onto the total: step back below it, to the last column with any weight.
    target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))[:, None]
    index = torch.searchsorted(running, target, right=True).clamp_max_(weights.shape[-1] - 1)
    before = running.gather(1, index) - weights.gather(1, index)
    return index[:, 0], (target - before)[:, 0].clamp_min_(0.0)
