"""Random draws: streams of numbers, one per sequence, and draws from them that are exact in the tail.

A float32 uniform resolves 2^-24: Gumbel noise made from it cuts off rare tokens and silently lowers the
temperature. All draws here start from float64 uniforms, and a categorical draw takes one of them per position
(inverse of the distribution function), not one per token.

A bulk generator makes the noise of one sequence depend on who else is in the batch. In `Streams` every number is a
pure function of (seed of the sequence, number of the draw, position in the sequence): Philox-4x32-10 of Salmon et al.,
"Parallel random numbers: as easy as 1, 2, 3" (2011). Batch size, neighbours, padding, ranks and a server's other
requests change nothing.

Shapes: a draw from B streams is [B, ...]; n rows of a table with V columns, in blocks of `_BLOCK`, and one number u for
each row.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Float64, Int64, Shaped
from torch import Tensor

from multimdm._checks import check_integer, require
from multimdm.process.checks import check_weights
from multimdm.process.places import beside, exact, fused, fuses, widened

_BLOCK = 256

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Four 32-bit words (in int64) from a 128-bit counter and a 64-bit key, by Philox-4x32-10."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # int64 products wrap around, but their 64 bits are those of the unsigned product.
        p0 = c0 * _MULTIPLIERS[0]
        p1 = c2 * _MULTIPLIERS[1]
        c0 = ((p1 >> 32) & _WORD) ^ c1 ^ k0
        c1 = p1 & _WORD
        c2 = ((p0 >> 32) & _WORD) ^ c3 ^ k1
        c3 = p0 & _WORD
        k0 = (k0 + _KEY_STEPS[0]) & _WORD
        k1 = (k1 + _KEY_STEPS[1]) & _WORD
    return c0, c1, c2, c3


class Streams:
    """One random stream per sequence; equal seeds give equal numbers, whatever else is in the batch.

    `Streams([11, 12])` serves a batch of two sequences. `Streams.spawn(seed, num)` derives `num` unrelated
    seeds from one, so that seeds 0 and 1 share no sequence.
    """

    def __init__(self, seeds: Sequence[int] | Tensor) -> None:
        seeds = torch.as_tensor(seeds).tolist() if not isinstance(seeds, Sequence) else list(seeds)
        for seed in seeds:
            require(
                isinstance(seed, int) and 0 <= seed < 2**63,
                f"seeds must be integers from 0 to 2**63 - 1; got {seed!r}",
            )
        self.seeds = torch.tensor(seeds, dtype=torch.int64)
        self._seeds_on = {self.seeds.device: self.seeds}
        self.draws: int | Tensor = 0
        """How many times every stream has been drawn from; [B, 1] if they were begun at different times."""

    @classmethod
    def spawn(cls, seed: int, num: int, first: int = 0) -> "Streams":
        """Streams of the sequences first .. first + num - 1 of the run with this seed."""
        check_integer("seed", seed, 0)
        check_integer("num", num, 1)
        check_integer("first", first, 0)
        index = torch.arange(first, first + num)
        zero = torch.zeros_like(index)
        # The run's seed is the key and the sequence's number the counter, whose last word is 1 here and 0 in draws.
        key = (zero + (seed & _WORD), zero + (seed >> 32 & _WORD))
        high, low, *_ = philox((index & _WORD, index >> 32, zero, zero + 1), key)
        return cls((high >> 1) << 32 | low)

    def __len__(self) -> int:
        return len(self.seeds)

    def uniform(self, shape: Sequence[int], device: torch.device | str | None = None) -> Tensor:
        """float64 numbers in the open interval (0, 1); shape[0] is the number of streams.

        The numbers of a sequence are laid out in row-major order, so a longer row begins with the shorter one.
        """
        require(
            len(shape) >= 1 and shape[0] == len(self),
            f"the first dimension must be the number of streams, {len(self)}; got shape {list(shape)}",
        )
        per_row = 1
        for size in shape[1:]:
            per_row *= size
        place = torch.device(device) if device is not None else self.seeds.device
        if place not in self._seeds_on:
            self._seeds_on[place] = self.seeds.to(place)
        seeds = self._seeds_on[place][:, None]
        # A block of Philox is 128 bits: two numbers of 52.
        block = torch.arange((per_row + 1) // 2, device=device).expand(len(self), -1)
        numbers = _numbers(block, torch.zeros_like(block) + self.draws, seeds)
        self.draws += 1
        return numbers[:, :per_row].reshape(tuple(shape))


@functools.partial(fused, any_shape=True)
def _numbers(block: Tensor, draw: Tensor, seeds: Tensor) -> Tensor:
    """Two numbers for each block of a row."""
    zero = torch.zeros_like(block)
    words = philox((block, draw, zero, zero), (seeds & _WORD, seeds >> 32))
    pairs = torch.stack([_open_unit(words[0], words[1]), _open_unit(words[2], words[3])], dim=-1)
    return pairs.flatten(1)


def _open_unit(high: Tensor, low: Tensor) -> Tensor:
    """(n + 1/2) / 2^52 for the 52-bit number n made of two words: never 0, never 1, symmetric."""
    bits = (high >> 6 << 26) | (low >> 6)
    return (bits.to(torch.float64) + 0.5) * 2.0**-52


Generator = torch.Generator | Streams | None
"""Where randomness comes from: torch's own generator, a given one, or one stream per sequence."""


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
    # the sums of blocks of `_BLOCK` columns, and of what is left of the row
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
    # sum_j exp(l_j - s) over blocks of `_BLOCK` columns, s the log-sum-exp of the row
    parts = logits[:, :whole].unflatten(-1, (whole // _BLOCK, _BLOCK)), logits[:, None, whole:]
    sums = [torch.exp(widened(part) - log_sum[:, None, None]).sum(-1) for part in parts]
    return torch.cat(sums, dim=-1), log_sum


def _inside(table: Tensor, sums: Tensor, u: Tensor, weights: Callable[[Tensor], Tensor]) -> Tensor:
    """The block in which u times the total falls, and the column inside it: `weights` are those of table entries."""
    V = table.shape[-1]
    block, rest = _search(sums, u * sums.sum(-1))
    # The block is read again alone: n rows of `_BLOCK` columns in float64, not of V.
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
