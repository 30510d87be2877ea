"""Held-out documents, as they pass by."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from multimdm.data.encoding import Encoded
from multimdm.process import Streams

_SEED = 0
"""The same documents are held out of the same corpus at every time."""


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
    """One document in 1 / fraction is held out, which one is drawn.

    Document i is the interval [i f, (i + 1) f); it is held out if a point lies in it, and every unit [k, k + 1) has one
    point. Fixed places would meet the rhythm of a corpus: where ten captions in a row go from short to long, every
    fiftieth is a long one.
    """
    seen = 0
    for batch in batches:
        edges = np.arange(seen, seen + len(batch) + 1) * fraction
        first, last = (int(edge) for edge in np.floor(edges[[0, -1]]))
        num = last - first + 1
        points = np.arange(first, last + 1) + Streams.spawn(_SEED, num, first).uniform((num,)).numpy()
        # of the points below an edge, those that are not below the edge before it
        held_out = np.diff(np.searchsorted(points, edges)) > 0
        seen += len(batch)
        yield Split(batch.where(~held_out), batch.where(held_out))


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
