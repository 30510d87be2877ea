"""Counter-based random streams, one per sequence.

A bulk generator makes the noise of one sequence depend on who else is in the batch. Here every number is a pure
function of (seed of the sequence, number of the draw, position in the sequence): Philox-4x32-10 of Salmon et al.,
"Parallel random numbers: as easy as 1, 2, 3" (2011). Batch size, neighbours, padding, ranks and a server's other
requests change nothing.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from multimdm._checks import check_integer, require
from multimdm.process.fusing import fused_of_any_shape

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
        block = torch.arange((per_row + 1) // 2, device=device).expand(len(self), -1)
        numbers = _numbers(block, torch.zeros_like(block) + self.draws, seeds)
        self.draws += 1
        return numbers[:, :per_row].reshape(tuple(shape))


@fused_of_any_shape
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
