"""How the global batch of a step is divided among ranks and rounds of gradient accumulation."""

import math
from collections.abc import Iterator


class Parts:
    """The ranges of a global batch that one rank works on, one after the other."""

    def __init__(self, batch_size: int, micro_batch: int | None, rank: int, ranks: int) -> None:
        if batch_size % ranks:
            raise ValueError(f"train.batch_size must be a multiple of the number of ranks, {ranks}; got {batch_size}")
        share = batch_size // ranks
        self.size = min(share, micro_batch) if micro_batch is not None else share
        """Sequences per part."""
        if share % self.size:
            raise ValueError(
                f"train.micro_batch must divide the {share} sequences of a rank (train.batch_size {batch_size} over "
                f"{ranks} ranks); got {micro_batch}"
            )
        self._rank, self._ranks = rank, ranks
        self._starts = range(rank * share, (rank + 1) * share, self.size)

    def __iter__(self) -> Iterator[range]:
        return (range(start, start + self.size) for start in self._starts)

    def of(self, num: int) -> Iterator[tuple[range, bool]]:
        """This rank's parts of any other number of sequences, and whether they count.

        Sharded networks must run equally often on all ranks, so a rank with fewer parts repeats its first in vain.
        """
        start, stop = num * self._rank // self._ranks, num * (self._rank + 1) // self._ranks
        most = math.ceil(math.ceil(num / self._ranks) / self.size)
        for number in range(most):
            first = start + number * self.size
            counted = first < stop
            first = first if counted else start
            yield range(first, min(first + self.size, stop)), counted
