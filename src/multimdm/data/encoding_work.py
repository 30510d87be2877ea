"""Sources to pieces (`pieces.py`): read in batches here, encoded here or in other processes, kept, given in order."""

import hashlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

from multimdm._stopping import ASKING
from multimdm.data import encoding
from multimdm.data.detokenize import DETOKENIZERS
from multimdm.data.encoding import Encoded, encode_documents, token_dtype
from multimdm.data.options import PrepareOptions
from multimdm.data.pairs import Pair, encode_pairs, pair_frame, prompt_form
from multimdm.data.pieces import Piece, Place, write_piece
from multimdm.data.sources import Source
from multimdm.data.tokenizer import Tokenizer
from multimdm.data.unfinished import OtherWorkError, SourcePieces

_AHEAD = 2
"""Batches read for each process before the first of them is encoded."""


class Batch(NamedTuple):
    """Documents, or pairs, that become one piece."""

    documents: list[str] | list[Pair]
    end: Place


class Encoder:
    """An encoder makes pieces of batches."""

    def __init__(self, options: PrepareOptions, tokenizer: Tokenizer) -> None:
        self.options, self.tokenizer = options, tokenizer

    def __call__(self, batch: Batch, path: Path) -> None:
        """Encode a batch and write its piece."""
        encoded = Encoded.joined(list(self._encoded(batch.documents)))
        write_piece(path, Piece(encoded, batch.end), self.tokenizer.fingerprint)

    def _encoded(self, documents: list) -> Iterator[Encoded]:
        options, tokenizer = self.options, self.tokenizer
        if options.layout == "pairs":
            form = prompt_form(options.template, options.ends, tokenizer)
            frame = pair_frame(tokenizer, options.length, form, token_dtype(tokenizer.vocab_size))
            return encode_pairs(documents, tokenizer, form, frame.room if options.too_long == "error" else None)
        detokenize = DETOKENIZERS[options.detokenize] if options.detokenize else None
        return encode_documents(documents, tokenizer, detokenize)


def source_pieces(source: Source, options: PrepareOptions, pieces: SourcePieces, crew: "Crew") -> Iterator[Piece]:
    """All pieces of a source in order: those that are kept, then those that are made now, and kept."""
    end = Place()
    for number in range(pieces.count):
        piece = pieces.read(number)
        end = piece.end
        yield piece
    if pieces.complete:
        return
    batches = _batches(source, options, end, pieces.directory.parent)
    for _ in crew.work((batch, pieces.path(number)) for number, batch in enumerate(batches, pieces.count)):
        yield pieces.take_up()
    pieces.complete_now()


def _batches(source: Source, options: PrepareOptions, start: Place, kept: Path) -> Iterator[Batch]:
    """What comes behind a place in a source, in batches of about BATCH_CHARACTERS."""
    documents: list = []
    room = encoding.BATCH_CHARACTERS
    part, number, bytes_read = start.part, start.documents, start.bytes_read
    passing = start.documents > 0

    def advance(count: int) -> None:
        nonlocal bytes_read
        bytes_read += 0 if passing else count  # what is passed over was counted when it was read first

    for part in range(start.part, source.parts):
        pairs = options.layout == "pairs"
        stream = source.pairs(options.fields, advance, part) if pairs else source.documents(advance, part)
        number = 0
        if passing:
            _pass_over(stream, start, source.name, kept)
            number, passing = start.documents, False
        for document in stream:
            documents.append(document)
            number += 1
            room -= sum(map(len, _texts(document)))
            if room <= 0:
                yield Batch(documents, Place(part, number, bytes_read, _hash(document)))
                documents, room = [], encoding.BATCH_CHARACTERS
    if documents:
        yield Batch(documents, Place(part, number, bytes_read, _hash(documents[-1])))


def _pass_over(stream: Iterator[str] | Iterator[Pair], start: Place, name: str, kept: Path) -> None:
    """Read a file up to a place; another text there is an error."""
    last = deque(islice(stream, start.documents), maxlen=1)
    if not last or _hash(last[0]) != start.last:
        raise OtherWorkError(
            f"source '{name}' is not what it was when this preparation began; to begin anew, remove {kept}"
        )


def _texts(document: str | Pair) -> Iterable[str]:
    return (document,) if isinstance(document, str) else document.texts()


def _hash(document: str | Pair) -> str:
    return hashlib.sha256("\0".join(_texts(document)).encode()).hexdigest()


class Crew:
    """Encodes batches: in this process, where the tokenizer uses all cores, or in several that share them."""

    def __init__(self, encoder: Encoder, workers: int, tokenizer_directory: Path) -> None:
        self._encoder, self._workers, self._pool = encoder, workers, None
        if workers > 1:
            threads = max(1, (os.cpu_count() or 1) // workers)
            self._pool = ProcessPoolExecutor(
                workers,
                multiprocessing.get_context("spawn"),  # a fork of a process that has threads may hang
                _begin_worker,
                (encoder.options, tokenizer_directory, threads),
            )

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)  # what is being encoded is kept

    def work(self, jobs: Iterable[tuple[Batch, Path]]) -> Iterator[None]:
        """Write the pieces of these batches in order, reading a few batches ahead."""
        if self._pool is None:
            yield from (self._encoder(*job) for job in jobs)
            return
        waiting: deque[Future[None]] = deque()
        try:
            for job in jobs:
                waiting.append(self._pool.submit(_encode, *job))
                if len(waiting) >= _AHEAD * self._workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise ChildProcessError(
                "a process that encodes was killed, perhaps for want of memory; take fewer --workers: the same command "
                "goes on"
            ) from None


_encoder: Encoder | None = None
"""The encoder of a worker."""


def _begin_worker(options: PrepareOptions, tokenizer_directory: Path, threads: int) -> None:
    global _encoder
    for number in ASKING:
        signal.signal(number, signal.SIG_IGN)  # they are meant for the process that hands out the work
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["RAYON_NUM_THREADS"] = str(threads)  # how the tokenizer's threads are limited
    _encoder = Encoder(options, Tokenizer.load(tokenizer_directory))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _encode(batch: Batch, path: Path) -> None:
    assert _encoder is not None
    _encoder(batch, path)
