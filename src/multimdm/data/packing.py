"""Documents to sequences of one length L.

`packed` (the convention of MDLM and DUO): an EOS after every document, the stream cut into chunks of L - 2, each
wrapped as [BOS] chunk [EOS]. No token is lost: the last chunk, if incomplete, is padded and its true length recorded.
`padded`: one document per sequence, [BOS] document [EOS] padding; of a long document the beginning is kept.
`pairs`: [BOS] prompt answer [EOS] EOS EOS ..., the end of the answer repeated to the end of the sequence.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Integer

from multimdm.data.encoding import Encoded
from multimdm.data.tokenizer import Tokenizer

Ends = Literal["both", "bos", "eos", "none"]
Layout = Literal["packed", "padded", "pairs"]
_BLOCK = 1 << 22
"""Positions laid out at once."""


class Sequences(NamedTuple):
    """Some sequences and how many positions of each are valid; the rest is padding."""

    ids: Integer[np.ndarray, "N L"]
    lengths: Integer[np.ndarray, " N"]
    starts: Integer[np.ndarray, " N"] | None = None
    """Where the answers of pairs begin."""


@dataclass(frozen=True)
class Frame:
    """What surrounds the text of a sequence."""

    length: int
    bos: int | None
    """Put first, if not None."""
    eos: int | None
    """Put last, if not None."""
    fill: int
    """Stands in padding, where it is never looked at."""
    dtype: np.dtype

    @classmethod
    def of(cls, tokenizer: Tokenizer, length: int, ends: Ends, dtype: np.dtype) -> "Frame":
        """The frame with the tokenizer's BOS and EOS; padding is its PAD, or else EOS."""
        bos = tokenizer.bos_id if ends in ("both", "bos") else None
        eos = tokenizer.eos_id if ends in ("both", "eos") else None
        if ends != "none" and tokenizer.bos_id is None and tokenizer.eos_id is None:
            raise ValueError(
                f"--tokenizer {tokenizer.name}: it has no BOS and no EOS token; use --layout padded --ends none"
            )
        fill = next((i for i in (tokenizer.pad_id, tokenizer.eos_id) if i is not None), 0)
        return cls(length, bos, eos, fill, dtype)

    @property
    def before(self) -> int:
        """The number of positions before the text."""
        return int(self.bos is not None)

    @property
    def room(self) -> int:
        """The number of positions for text."""
        return self.length - self.before - int(self.eos is not None)

    def lay_out(self, ids: Integer[np.ndarray, " T"], lengths: Integer[np.ndarray, " N"]) -> Sequences:
        """Texts end to end, with these lengths (at most `room`), each in a sequence of its own."""
        column = np.arange(self.length)
        rows = np.full((len(lengths), self.length), self.fill, dtype=self.dtype)
        end = lengths[:, None] + self.before
        rows[(column >= self.before) & (column < end)] = ids
        if self.bos is not None:
            rows[:, 0] = self.bos
        if self.eos is not None:
            np.put_along_axis(rows, end, np.array(self.eos, dtype=self.dtype), axis=1)
        return Sequences(rows, lengths + self.length - self.room)


class Packed:
    """Documents end to end, cut where a sequence is full."""

    def __init__(self, frame: Frame, separator: int, drop_last: bool = False) -> None:
        """`separator` (EOS) follows every document; `drop_last` leaves out an incomplete last sequence."""
        self.frame, self.separator, self.drop_last = frame, separator, drop_last
        self.truncated = 0
        """Documents of which the end was left out: none."""
        self.dropped = 0
        """Tokens that are left out."""
        self._rest = np.empty(0, dtype=frame.dtype)

    def add(self, documents: Encoded) -> Iterator[Sequences]:
        """The sequences that these documents fill."""
        separated = np.insert(documents.ids, documents.lengths.cumsum(), self.separator)
        stream = np.concatenate([self._rest, separated])
        room = self.frame.room
        full = len(stream) // room
        self._rest = stream[full * room :].copy()
        step = max(1, _BLOCK // self.frame.length)
        for first in range(0, full, step):
            last = min(first + step, full)
            yield self.frame.lay_out(stream[first * room : last * room], np.full(last - first, room))

    def finish(self) -> Iterator[Sequences]:
        """The incomplete last sequence, if it is wanted."""
        rest, self._rest = self._rest, self._rest[:0]
        if self.drop_last:
            self.dropped += len(rest)
        elif len(rest):
            yield self.frame.lay_out(rest, np.array([len(rest)]))


class Pairs:
    """A prompt and its answer per sequence."""

    truncated = 0

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.left_out = 0
        """Pairs that are too long, prompt and answer."""
        self.dropped = 0
        """Tokens of the pairs that are left out."""

    def add(self, documents: Encoded) -> Iterator[Sequences]:
        """One sequence for each pair that fits."""
        fits = documents.lengths <= self.frame.room
        self.left_out += int((~fits).sum())
        self.dropped += int(documents.lengths[~fits].sum())
        documents = documents.where(fits)
        step = max(1, _BLOCK // self.frame.length)
        for first in range(0, len(documents), step):
            part = documents[first : first + step]
            assert part.starts is not None
            laid_out = self.frame.lay_out(part.ids, part.lengths)
            yield laid_out._replace(starts=part.starts + self.frame.before)

    def finish(self) -> Iterator[Sequences]:
        """There is no further sequence, since nothing waits."""
        return iter(())


class Padded:
    """One document per sequence."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.truncated = 0
        """Documents of which the end was left out."""
        self.dropped = 0
        """Tokens that are left out."""

    def add(self, documents: Encoded) -> Iterator[Sequences]:
        """One sequence for each document."""
        room = self.frame.room
        step = max(1, _BLOCK // self.frame.length)
        for first in range(0, len(documents), step):
            part = documents[first : first + step]
            kept = np.minimum(part.lengths, room)
            starts = part.lengths.cumsum() - part.lengths
            position = np.arange(len(part.ids)) - np.repeat(starts, part.lengths)
            self.truncated += int((part.lengths > room).sum())
            self.dropped += int((part.lengths - kept).sum())
            yield self.frame.lay_out(part.ids[position < room], kept)

    def finish(self) -> Iterator[Sequences]:
        """There is no further sequence, since nothing waits."""
        return iter(())
