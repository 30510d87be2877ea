"""What every step is given: its seeds, its learning rate, and the part of the global batch that each rank works on.

All are pure functions of the recipe and the step. No state of a random generator needs to be saved: a resumed run
computes the same numbers, and so does a run with another number of ranks.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from multimdm.training.settings import TrainSettings


def derive(seed: int, purpose: str, *numbers: int) -> int:
    """A number in 0 .. 2**63 - 1 for one purpose; unrelated for different arguments."""
    text = "/".join([str(seed), purpose, *map(str, numbers)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def stage_seed(seed: int, lineage: Sequence[Mapping[str, Any]]) -> int:
    """The seed of texts, times, noise and dropout of a run: another in every stage of a model's lineage.

    With the seed of the recipe alone a second stage would meet what the first has learnt already. A first stage has
    that seed itself; what was imported was not trained here.
    """
    earlier = sum("recipe" in step for step in lineage)
    return derive(seed, "earlier stages", earlier) if earlier else seed


def learning_rate(step: int, train: TrainSettings) -> float:
    """The rate of the step after `step` steps: a linear warm-up, then constant or half a cosine."""
    peak = train.learning_rate
    if step < train.warmup:
        return peak * (step + 1) / train.warmup
    if train.decay == "constant":
        return peak
    done = (step - train.warmup) / max(1, train.steps - train.warmup)
    return peak * (train.final_rate + (1 - train.final_rate) * (1 + math.cos(math.pi * min(1.0, done))) / 2)


class Parts:
    """The ranges of a global batch that one rank works on, one after the other."""

    def __init__(self, batch_size: int, micro_batch: int | None, rank: int, ranks: int) -> None:
        if batch_size % ranks:
            raise ValueError(f"train.batch_size must be a multiple of the number of ranks, {ranks}; got {batch_size}")
        share = batch_size // ranks
        self.size = min(share, micro_batch) if micro_batch is not None else share
        """The number of sequences per part."""
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
