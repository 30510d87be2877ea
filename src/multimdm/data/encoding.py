"""Documents to ids, in batches that are large enough for the tokenizer to use all cores."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from jaxtyping import Bool, Integer

from multimdm.data.tokenizer import Tokenizer

BATCH_CHARACTERS = 1 << 21
"""Text encoded at once (a longer document is encoded whole). Memory is about 150 bytes for each."""


@dataclass(frozen=True)
class Encoded:
    """The ids of some documents, end to end, and the length of each."""

    ids: Integer[np.ndarray, " T"]
    lengths: Integer[np.ndarray, " D"]
    starts: Integer[np.ndarray, " D"] | None = None
    """The length of each prompt of pairs, behind which the answer begins."""
    lost: Integer[np.ndarray, "D 2"] | None = None
    """How many characters of each document the tokenizer leaves out, since it lacks them, and the first one's code."""

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, part: slice) -> "Encoded":
        """Documents start .. stop - 1."""
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise ValueError(f"documents are taken one after the other; got a step of {step}")
        ends = self.lengths.cumsum()
        first = ends[start - 1] if start else 0
        last = ends[stop - 1] if stop else 0
        starts = None if self.starts is None else self.starts[start:stop]
        lost = None if self.lost is None else self.lost[start:stop]
        return Encoded(self.ids[first : max(first, last)], self.lengths[start:stop], starts, lost)

    @classmethod
    def joined(cls, parts: "Sequence[Encoded]") -> "Encoded":
        """The documents of all parts, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        starts = [part.starts for part in parts if part.starts is not None]
        lost = [part.lost for part in parts if part.lost is not None]
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.lengths for part in parts]),
            np.concatenate(starts) if starts else None,
            np.concatenate(lost) if lost else None,
        )

    def where(self, chosen: Bool[np.ndarray, " D"]) -> "Encoded":
        """The documents for which the boolean array is true."""
        starts = None if self.starts is None else self.starts[chosen]
        lost = None if self.lost is None else self.lost[chosen]
        return Encoded(self.ids[np.repeat(chosen, self.lengths)], self.lengths[chosen], starts, lost)


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest unsigned type, little-endian, that holds all ids."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def encode_documents(
    documents: Iterable[str], tokenizer: Tokenizer, detokenize: Callable[[str], str] | None = None
) -> Iterator[Encoded]:
    """Encode a stream of documents; those of which no token remains are dropped.

    What the tokenizer lost of a whole batch of them is told with the next one.
    """
    if detokenize is not None:
        documents = map(detokenize, documents)
    dtype = token_dtype(tokenizer.vocab_size)
    untold: list[str] = []
    for texts in _batches(documents):
        rows = tokenizer.encode_batch(texts)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.fromiter(chain.from_iterable(rows), dtype, int(lengths.sum()))
        kept = lengths > 0
        lost = None
        if tokenizer.loses:
            missing = [*untold, *map(tokenizer.lost, texts)]
            lost = account_of_lost(missing, np.concatenate([np.zeros(len(untold), dtype=bool), kept]))
            untold = [] if kept.any() else [characters for characters in missing if characters]
        if not untold:
            yield Encoded(ids, lengths[kept], lost=lost)
    if untold:  # nobody is left to tell it
        yield Encoded(np.zeros(0, dtype), np.zeros(0, np.int64), lost=np.zeros((0, 2), np.int64))


def account_of_lost(lost: Sequence[str], kept: Bool[np.ndarray, " D"]) -> Integer[np.ndarray, "K 2"]:
    """`Encoded.lost` of the documents that are kept; the next one (or the last) accounts for one that is left empty."""
    account = np.zeros((int(kept.sum()), 2), dtype=np.int64)
    for number, characters in zip(kept.cumsum() - kept, lost, strict=True):
        if characters and len(account):
            row = account[min(number, len(account) - 1)]
            row[:] = row[0] + len(characters), row[1] or ord(characters[0])
    return account


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """Runs of documents with about BATCH_CHARACTERS in each."""
    batch: list[str] = []
    room = BATCH_CHARACTERS
    for text in documents:
        batch.append(text)
        room -= len(text)
        if room <= 0:
            yield batch
            batch, room = [], BATCH_CHARACTERS
    if batch:
        yield batch
