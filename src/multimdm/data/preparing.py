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
from multimdm.data.detokenize import DETOKENIZERS
from multimdm.data.encoding import Encoded, encode_documents, token_dtype
from multimdm.data.foreign_tokenizers import directory_hash, load_tokenizer
from multimdm.data.manifest import Manifest, SourceStamp
from multimdm.data.mixture import interleave, parse_weight
from multimdm.data.options import PrepareOptions
from multimdm.data.pairs import encode_pairs, pair_frame, prompt_form
from multimdm.data.reuse import existing, reusable
from multimdm.data.sources import Source, open_source
from multimdm.data.split_writer import SplitWriter
from multimdm.data.splitting import Split, hold_out_fraction, hold_out_last, take
from multimdm.data.tokenizer import Tokenizer
from multimdm.data.trained_tokenizers import bpe_size, train_bpe, train_chars


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
    """What `prepare` did."""

    directory: Path
    reused: bool
    """Nothing had changed and nothing was done."""
    manifests: dict[str, Manifest]
    """By split: 'train' and 'valid', or 'all'."""


def prepare(
    options: PrepareOptions,
    out: str | Path,
    force: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Prepared:
    """Prepare a corpus in the directory `out`, unless it is there already.

    With a validation split, `out` has the subdirectories train and valid. Data that were prepared otherwise are
    replaced only with `force`. Nothing is ever left half-written.
    """
    options.check()
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

    with whole_directory(out) as directory:
        stamps = [
            SourceStamp(source.name, [stamp.hashed() for stamp in source.stamps()]) for source in [*sources, *held_out]
        ]
        tokenizer = _tokenizer(options, sources, progress)
        stream = _Stream(options, tokenizer, progress, [*sources, *held_out])
        splits = stream.splits(sources, [weight for weight, _ in named], held_out)
        manifests = {}
        with ExitStack() as stack:
            names = ["train", "valid"] if options.holds_out else [None]
            writers = [stack.enter_context(SplitWriter(directory, name, options, tokenizer)) for name in names]
            for split in splits:
                for writer, documents in zip(writers, split, strict=False):
                    if documents is not None:
                        writer.add(documents)
            for writer in writers:
                manifests[writer.name or "all"] = writer.finish(stamps, tokenizer_hash)
    return Prepared(out, False, manifests)


def _tokenizer(options: PrepareOptions, sources: list[Source], progress: Callable[[Progress], None]) -> Tokenizer:
    """Load the tokenizer, or make it from all documents of the sources (those given with --valid excepted)."""
    if not (options.tokenizer.startswith("bpe:") or options.tokenizer == "chars"):
        return load_tokenizer(options.tokenizer)
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
    ) -> None:
        self._options, self._tokenizer, self._progress = options, tokenizer, progress
        self._done = Progress(bytes_total=None if options.repeat else _total(sources))

    def splits(self, sources: list[Source], weights: list[float], held_out: list[Source]) -> Iterator[Split]:
        """Documents in order, each for training or held out."""
        options = self._options
        if options.mix:
            limit = options.room if options.layout == "padded" else None
            starts = [partial(self._encoded, source) for source in sources]
            batches = interleave(starts, weights, limit, options.repeat)
        else:
            batches = (batch for source in sources for batch in self._encoded(source))
        if options.max_documents is not None:
            batches = take(batches, options.max_documents)
        if options.valid_fraction is not None:
            yield from hold_out_fraction(batches, options.valid_fraction)
        elif options.valid_last is not None:
            yield from hold_out_last(batches, options.valid_last)
        else:
            yield from (Split(batch, None) for batch in batches)
            yield from (Split(None, batch) for source in held_out for batch in self._encoded(source))

    def _batches(self, source: Source) -> Iterator[Encoded]:
        options, tokenizer = self._options, self._tokenizer
        if options.layout == "pairs":
            form = prompt_form(options.template, options.ends, tokenizer)
            frame = pair_frame(tokenizer, options.length, form, token_dtype(tokenizer.vocab_size))
            room = frame.room if options.too_long == "error" else None
            return encode_pairs(source.pairs(options.fields, self._advance), tokenizer, form, room)
        detokenize = DETOKENIZERS[options.detokenize] if options.detokenize else None
        return encode_documents(source.documents(self._advance), tokenizer, detokenize)

    def _encoded(self, source: Source) -> Iterator[Encoded]:
        some = False
        for batch in self._batches(source):
            done = self._done
            self._done = replace(done, documents=done.documents + len(batch), tokens=done.tokens + len(batch.ids))
            self._progress(self._done)
            some = some or len(batch) > 0
            yield batch
        if not some:
            raise ValueError(f"source '{source.name}' has no text: all its documents are blank")

    def _advance(self, count: int) -> None:
        self._done = replace(self._done, bytes_read=self._done.bytes_read + count)
