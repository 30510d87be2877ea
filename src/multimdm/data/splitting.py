"""Held-out documents, as they pass by."""

from collections import deque
from collections.abc import Iterable, Iterator
from math import ceil
from typing import NamedTuple

import numpy as np

from multimdm.data.encoding import Encoded
from multimdm.process import Streams
from multimdm.process.draws import pick

_SEED = 0
"""The same documents are held out of the same corpus at every time."""
_MOST_TOGETHER = 10_000
"""Documents of a run, at most: of a smaller share than one in so many, most runs have none."""
_ROUNDING = 1e-9
"""By which products of a fraction and a number of documents may be off."""


class Split(NamedTuple):
    """Documents to train on and documents held out."""

    train: Encoded | None
    valid: Encoded | None


def take(batches: Iterable[Encoded], documents: int) -> Iterator[Encoded]:
    """The first `documents` documents."""
    for batch in batches:
        yield batch[: min(documents, len(batch))]
        documents -= len(batch)
        if documents <= 0:
            return


def hold_out_fraction(batches: Iterable[Encoded], fraction: float) -> Iterator[Split]:
    """This share of the documents is held out, spread over all of them: of every few in a row as many, from a place on
    that is drawn.

    Fixed places would meet the rhythm of a corpus: where ten captions in a row go from short to long, every fiftieth is
    a long one.
    """
    size = min(ceil(1 / fraction - _ROUNDING), _MOST_TOGETHER)
    seen = 0
    for batch in batches:
        first, last = seen // size, (seen + len(batch)) // size
        # of the k-th run of n documents, as many as take the sum over all runs to the whole part of (k + 1) n f
        sums = np.floor(np.arange(first, last + 2) * size * fraction + _ROUNDING)
        runs = last - first + 1
        begin = pick(Streams.spawn(_SEED, runs, first).uniform((runs,)), size).numpy()
        held_out = (np.arange(size) - begin[:, None]) % size < np.diff(sums)[:, None]
        chosen = held_out.ravel()[seen - first * size :][: len(batch)]
        seen += len(batch)
        yield Split(batch.where(~chosen), batch.where(chosen))


def hold_out_last(batches: Iterable[Encoded], documents: int) -> Iterator[Split]:
    """The last `documents` documents are held out. Their ids wait in memory: only the end tells which they are."""
    waiting: deque[Encoded] = deque()
    held = 0
    for batch in batches:
        waiting.append(batch)
        held += len(batch)
        while held > documents:
            oldest = waiting.popleft()
            leave = min(held - documents, len(oldest))
            yield Split(oldest[:leave], None)
            held -= leave
            if leave < len(oldest):
                waiting.appendleft(oldest[leave:])
    yield from (Split(None, batch) for batch in waiting)
