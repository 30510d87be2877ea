"""Several sources in given proportions, document by document.

The weights are shares of **tokens**, not of documents: sources with long documents would otherwise crowd out the rest.
The next document always comes from the source that is furthest behind, that is with the least tokens / weight, so at
every moment each source has its share to within one document. There is no randomness.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from multimdm.data.encoding import Encoded

EMIT = 1 << 12
"""Documents put together before they are passed on."""


def parse_weight(text: str) -> tuple[float, str]:
    """`0.7:a.txt` -> (0.7, 'a.txt')."""
    number, colon, name = text.partition(":")
    try:
        weight = float(number)
    except ValueError:
        weight = float("nan")
    if not (colon and name and 0 < weight < float("inf")):
        raise ValueError(f"--mix {text}: expected WEIGHT:SOURCE with a weight above 0, such as 0.7:a.txt")
    return weight, name


def interleave(
    starts: Sequence[Callable[[], Iterator[Encoded]]],
    weights: Sequence[float],
    limit: int | None = None,
    repeat: bool = False,
) -> Iterator[Encoded]:
    """Documents of all sources in the proportions of `weights`.

    `starts` opens each source anew. Of a document longer than `limit`, the limit is counted (what a padded sequence
    keeps of it). When the source whose turn it is has no documents left, the mixture ends; with `repeat` the source
    begins again, and the mixture ends once every source has been read to its end.
    """
    readers = [_Reader(start) for start in starts]
    tokens = np.zeros(len(readers))
    finished: set[int] = set()
    taken: list[_Document] = []
    while True:
        turn = int(np.argmin(tokens / np.asarray(weights)))
        document = readers[turn].next()
        if document is None:
            finished.add(turn)
            if not repeat or len(finished) == len(readers):
                break
            readers[turn] = _Reader(starts[turn])
            document = readers[turn].next()
            if document is None:
                raise ValueError(f"source {turn + 1} of the mixture has no text")
        # Packed, a document also costs the EOS behind it; padded, no more than its sequence has room for.
        tokens[turn] += len(document.ids) + 1 if limit is None else min(len(document.ids), limit)
        taken.append(document)
        if len(taken) == EMIT:
            yield _together(taken)
            taken = []
    if taken:
        yield _together(taken)


class _Document(NamedTuple):
    """The ids of one, and its row of `Encoded.lost`."""

    ids: np.ndarray
    lost: np.ndarray | None


class _Reader:
    """The documents of one source, one at a time."""

    def __init__(self, start: Callable[[], Iterator[Encoded]]) -> None:
        self._documents = (document for batch in start() for document in _documents(batch))

    def next(self) -> _Document | None:
        return next(self._documents, None)


def _documents(batch: Encoded) -> list[_Document]:
    ids = np.split(batch.ids, batch.lengths.cumsum()[:-1]) if len(batch) else []
    lost = [None] * len(ids) if batch.lost is None else batch.lost
    return [_Document(*document) for document in zip(ids, lost, strict=True)]


def _together(documents: list[_Document]) -> Encoded:
    lost = [document.lost for document in documents if document.lost is not None]  # of all, or of none
    return Encoded(
        np.concatenate([document.ids for document in documents]),
        np.array([len(document.ids) for document in documents], dtype=np.int64),
        lost=np.stack(lost) if lost else None,
    )
