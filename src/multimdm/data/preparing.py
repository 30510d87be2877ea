"""From sources to prepared data: read, encode, mix, hold out, pack, write.

    prepare(PrepareOptions(sources=("book.txt",), tokenizer="bpe:4096", length=128), "data/book")

What is kept of a text: everything but line ends between documents and blank documents. Decoding gives it back up to
what the tokenizer changes (byte-level BPE, GPT-2's and `chars`: nothing; BERT's: case, accents, spacing) and, if asked
for, what `detokenize` changes.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from multimdm._files import whole_directory
from multimdm._stopping import Listener
from multimdm.data.detokenize import DETOKENIZERS
from multimdm.data.encoding import Encoded
from multimdm.data.encoding_work import Crew, Encoder, source_pieces
from multimdm.data.foreign_tokenizers import directory_hash, load_tokenizer
from multimdm.data.manifest import Manifest
from multimdm.data.mixture import interleave, parse_weight
from multimdm.data.options import PrepareOptions
from multimdm.data.reuse import existing, reusable
from multimdm.data.sources import Source, open_source
from multimdm.data.split_writer import SplitWriter
from multimdm.data.splitting import Split, hold_out_fraction, hold_out_last, take
from multimdm.data.tokenizer import Tokenizer
from multimdm.data.trained_tokenizers import bpe_size, train_bpe, train_chars
from multimdm.data.unfinished import OtherWorkError, Unfinished, unfinished


@dataclass(frozen=True)
class Progress:
    """How far the work is."""

    stage: Literal["tokenizer", "encoding"] = "encoding"
    """Reading to make a tokenizer, or encoding."""
    documents: int = 0
    tokens: int = 0
    bytes_read: int = 0
    bytes_total: int | None = None
    """None if not known."""


@dataclass(frozen=True)
class Prepared:
    """What `prepare` made."""

    directory: Path
    reused: bool
    """Nothing had changed and nothing was done."""
    manifests: dict[str, Manifest]
    """Split ('train' and 'valid', or 'all') -> its manifest."""
    kept: int = 0
    """Documents whose encoding was kept from an attempt that was stopped."""


def prepare(
    options: PrepareOptions,
    out: str | Path,
    force: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
    workers: int = 1,
) -> Prepared:
    """Prepare a corpus in the directory `out`, unless it is there already, by so many processes.

    With a validation split, `out` has the subdirectories train and valid. Data that were prepared otherwise are
    replaced only with `force`. Nothing is ever left half-written. What is encoded when the work is stopped is kept
    beside `out` (`unfinished.py`): the same call goes on from there, and comes to the same bytes.
    """
    options.check()
    if workers < 1:
        raise ValueError(f"--workers must be at least 1; got {workers}")
    out = Path(out)
    named = [parse_weight(part) for part in options.mix] or [(1.0, name) for name in options.sources]
    sources = [open_source(name, options.reading, options.split) for _, name in named]
    held_out = [open_source(name, options.reading, options.split) for name in options.valid]
    made_here = options.tokenizer.startswith("bpe:") or options.tokenizer == "chars"
    tokenizer_hash = None if made_here else directory_hash(options.tokenizer)
    if force:
        existing(out)  # others' files are not replaced even so
    elif manifests := reusable(out, options, [*sources, *held_out], tokenizer_hash):
        return Prepared(out, True, manifests)

    with unfinished(out) as work, whole_directory(out) as directory:
        request = work.request(options, [*sources, *held_out], tokenizer_hash, force)
        tokenizer = _tokenizer(options, sources, progress, work)
        stream = _Stream(options, tokenizer, progress, [*sources, *held_out], work)
        manifests = {}
        with ExitStack() as stack:
            names = ["train", "valid"] if options.holds_out else [None]
            writers = [stack.enter_context(SplitWriter(directory, name, options, tokenizer)) for name in names]
            crew = Crew(Encoder(options, tokenizer), workers, work.tokenizer_directory(tokenizer))
            with Listener("what is being encoded is finished and kept") as listener:
                try:
                    for split in stream.splits([weight for weight, _ in named], stack.enter_context(crew), listener):
                        for writer, documents in zip(writers, split, strict=False):
                            if documents is not None:
                                writer.add(documents)
                except _AskedToStopError:
                    raise listener.leaving(stream.kept_in_words()) from None
            count = sum(writer.documents for writer in writers)
            for writer in writers:
                manifests[writer.name or "all"] = writer.finish(request.sources, tokenizer_hash, count)
    return Prepared(out, False, manifests, stream.kept_before)


class _AskedToStopError(Exception):
    """Leaves the work where a piece is whole."""


def _tokenizer(
    options: PrepareOptions, sources: list[Source], progress: Callable[[Progress], None], work: Unfinished
) -> Tokenizer:
    """Load the tokenizer, or make it from all documents of the sources (those given with --valid excepted), once."""
    kept = work.tokenizer()
    if not (options.tokenizer.startswith("bpe:") or options.tokenizer == "chars"):
        try:
            tokenizer = load_tokenizer(options.tokenizer)
        except ValueError:
            if kept is None:
                raise
            return kept  # the Hub that gave it is silent now
        if kept is not None and kept.fingerprint != tokenizer.fingerprint:
            raise OtherWorkError(
                f"--tokenizer {options.tokenizer} is not what it was when this preparation began; to begin anew, "
                f"remove {work.directory}"
            )
    elif kept is not None:
        return kept
    else:
        tokenizer = _made(options, sources, progress)
    if kept is None:
        work.keep_tokenizer(tokenizer)
    return tokenizer


def _made(options: PrepareOptions, sources: list[Source], progress: Callable[[Progress], None]) -> Tokenizer:
    detokenize = DETOKENIZERS[options.detokenize] if options.detokenize else str
    done = Progress("tokenizer", bytes_total=_total(sources))

    def advance(count: int) -> None:
        nonlocal done
        done = replace(done, bytes_read=done.bytes_read + count)

    def documents() -> Iterator[str]:
        for number, text in enumerate(_all_texts(options, sources, advance), start=1):
            if number % 1024 == 0:
                progress(replace(done, documents=number))
            yield detokenize(text)

    if options.tokenizer == "chars":
        return train_chars(documents())
    return train_bpe(documents(), bpe_size(options.tokenizer))


def _all_texts(options: PrepareOptions, sources: list[Source], advance: Callable[[int], None]) -> Iterator[str]:
    """Documents, or the prompts and answers of pairs."""
    limit = None if options.mix else options.max_documents
    if options.layout != "pairs":
        return islice((text for source in sources for text in source.documents(advance)), limit)
    pairs = (pair for source in sources for pair in source.pairs(options.fields, advance))
    return (text for pair in islice(pairs, limit) for text in pair.texts())


def _total(sources: list[Source]) -> int | None:
    sizes = [source.size for source in sources]
    return None if None in sizes else sum(size for size in sizes if size is not None)


class _Stream:
    """Encoded documents of all sources, with a running account of the work."""

    def __init__(
        self,
        options: PrepareOptions,
        tokenizer: Tokenizer,
        progress: Callable[[Progress], None],
        sources: list[Source],
        work: Unfinished,
    ) -> None:
        """`sources`: those held out come last."""
        self._options, self._sources, self._progress, self._loses = options, sources, progress, tokenizer.loses
        self._done = Progress(bytes_total=None if options.repeat else _total(sources))
        self._pieces = [work.pieces(number, tokenizer.fingerprint) for number in range(len(sources))]
        self.kept_before = sum(pieces.documents for pieces in self._pieces)
        """Documents of pieces that an earlier attempt kept."""

    def splits(self, weights: list[float], crew: Crew, listener: Listener) -> Iterator[Split]:
        """Documents in order, each for training or held out; one weight for each source that is not held out."""
        options = self._options
        encoded = [partial(self._encoded, number, crew, listener) for number in range(len(self._sources))]
        sources, held_out = encoded[: len(weights)], encoded[len(weights) :]
        if options.mix:
            limit = options.room if options.layout == "padded" else None
            batches = interleave(sources, weights, limit, options.repeat)
        else:
            batches = (batch for source in sources for batch in source())
        if options.max_documents is not None:
            batches = take(batches, options.max_documents)
        if options.valid_fraction:
            yield from hold_out_fraction(batches, options.valid_fraction)
        elif options.valid_last is not None:
            yield from hold_out_last(batches, options.valid_last)
        else:
            yield from (Split(batch, None) for batch in batches)
            yield from (Split(None, batch) for source in held_out for batch in source())

    def _encoded(self, number: int, crew: Crew, listener: Listener) -> Iterator[Encoded]:
        source, pieces = self._sources[number], self._pieces[number]
        some, bytes_before = False, 0
        for batch, end in source_pieces(source, self._options, pieces, crew):
            done = self._done
            self._done = replace(
                done,
                documents=done.documents + len(batch),
                tokens=done.tokens + len(batch.ids),
                bytes_read=done.bytes_read + end.bytes_read - bytes_before,
            )
            bytes_before = end.bytes_read
            self._progress(self._done)
            if listener.asked:
                raise _AskedToStopError
            some = some or len(batch) > 0
            yield batch
        if not some:
            unknown = ", or of characters that the tokenizer lacks" * self._loses
            raise ValueError(f"source '{source.name}' has no text: all its documents are blank{unknown}")

    def kept_in_words(self) -> str:
        """What need not be done again."""
        total = _total(self._sources)
        if total is None:
            return f"kept {sum(pieces.documents for pieces in self._pieces):,} documents, encoded"
        kept = sum(pieces.bytes_read for pieces in self._pieces)
        return f"kept {kept / 1e6:,.1f} of {total / 1e6:,.1f} MB of text, encoded"
