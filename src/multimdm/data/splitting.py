"""Held-out documents, as they pass by."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from multimdm.data.encoding import Encoded


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
    """Every (1 / fraction)-th document is held out: document i if floor(i * fraction) grows there."""
    seen = 0
    for batch in batches:
        index = np.arange(seen, seen + len(batch) + 1)
        held_out = np.diff(np.floor(index * fraction)) > 0
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
