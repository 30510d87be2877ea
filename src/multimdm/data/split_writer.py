"""One split on its way to disk: packed, written, accounted for."""

from math import ceil
from pathlib import Path

from multimdm.data.encoding import Encoded
from multimdm.data.manifest import FORMAT_VERSION, Counts, Manifest, SourceStamp
from multimdm.data.options import PrepareOptions
from multimdm.data.packing import Frame, Packed, Padded, Pairs
from multimdm.data.pairs import pair_frame, prompt_form
from multimdm.data.reuse import as_recorded
from multimdm.data.storage import SequenceWriter
from multimdm.data.tokenizer import Tokenizer
from multimdm.process.settings import PromptForm


class SplitWriter:
    """One split on its way to disk."""

    def __init__(self, directory: Path, name: str | None, options: PrepareOptions, tokenizer: Tokenizer) -> None:
        self.name = name
        self._options, self._tokenizer = options, tokenizer
        self._directory = directory / name if name else directory
        self._directory.mkdir(exist_ok=True)
        pairs = options.layout == "pairs"
        self._form: PromptForm | None = prompt_form(options.template, options.ends, tokenizer) if pairs else None
        self._writer = SequenceWriter(self._directory, options.length, tokenizer.vocab_size, pairs)
        self._layout = self._laid_out()
        self.documents = 0
        """How many were added."""
        self._lost = 0
        self._first_lost: str | None = None

    def _laid_out(self) -> Packed | Padded | Pairs:
        options, tokenizer, dtype = self._options, self._tokenizer, self._writer.dtype
        if self._form is not None:
            return Pairs(pair_frame(tokenizer, options.length, self._form, dtype))
        frame = Frame.of(tokenizer, options.length, options.ends, dtype)
        if options.layout == "padded":
            return Padded(frame)
        if tokenizer.eos_id is None:
            raise ValueError(f"--tokenizer {tokenizer.name}: it has no EOS to join documents; use --layout padded")
        return Packed(frame, tokenizer.eos_id, options.drop_last)

    def __enter__(self) -> "SplitWriter":
        self._writer.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.__exit__(*error)

    def add(self, documents: Encoded) -> None:
        """Pack these documents and write them."""
        self.documents += len(documents)
        if documents.lost is not None and documents.lost.any():
            self._lost += int(documents.lost[:, 0].sum())
            self._first_lost = self._first_lost or chr(documents.lost[documents.lost[:, 0] > 0][0, 1])
        for sequences in self._layout.add(documents):
            self._writer.write(sequences)

    def finish(self, sources: list[SourceStamp], tokenizer_hash: str | None, documents: int) -> Manifest:
        """Write the rest, the tokenizer and the manifest; `documents` is the number of those of all splits."""
        options, tokenizer, writer = self._options, self._tokenizer, self._writer
        for sequences in self._layout.finish():
            writer.write(sequences)
        if writer.sequences == 0:
            raise ValueError(self._why_empty(documents))
        knows_all = tokenizer.unk_id is None or tokenizer.unk_id in (tokenizer.bos_id, tokenizer.eos_id)
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            split=self.name,
            layout=options.layout,
            ends=options.ends if self._form is None else "both" if self._form == "bos" else "eos",
            length=options.length,
            dtype=writer.dtype_name,
            vocab_size=tokenizer.vocab_size,
            tokenizer=tokenizer.name,
            tokenizer_fingerprint=tokenizer.fingerprint,
            tokenizer_files_sha256=tokenizer_hash,
            tokens_sha256=writer.finish(),
            counts=Counts(
                documents=self.documents,
                sequences=writer.sequences,
                tokens=int(writer.token_counts.sum()),
                truncated=self._layout.truncated,
                dropped=self._layout.dropped,
                unknown=self._lost if knows_all else int(writer.token_counts[tokenizer.unk_id]) + self._lost,
                left_out=self._layout.left_out if isinstance(self._layout, Pairs) else 0,
                first_lost=self._first_lost,
            ),
            sources=sources,
            options=as_recorded(options),
            prompts=self._form,
        )
        tokenizer.save(self._directory)
        manifest.write(self._directory)
        return manifest

    def _why_empty(self, documents: int) -> str:
        if isinstance(self._layout, Pairs) and self._layout.left_out:
            return f"all {self._layout.left_out} pairs are too long for --length {self._options.length}; raise it"
        if self.documents and self._options.drop_last:
            return f"the {self.documents} documents do not fill one sequence; shorten --length or leave out --drop-last"
        there = "there is only 1 document" if documents == 1 else f"there are only {documents:,} documents"
        if self.name == "valid":
            fraction = self._options.valid_fraction or 1.0
            fault = f"no document is held out: --valid-fraction {fraction:g} takes one in {ceil(1 / fraction):,}"
            last = "hold out nothing with --valid-fraction 0"
        else:
            fault = f"no document is left to train on: --valid-last {self._options.valid_last} holds out all of them"
            last = "leave --valid-last out"
        return f"{fault}, and {there}; {self._more_documents()}hold out other text (prepare --valid OTHER), or {last}"

    def _more_documents(self) -> str:
        """How one text becomes several documents."""
        options = self._options
        if options.layout == "pairs":
            return ""
        if options.separator is not None or options.documents != "line":
            return "make every line a document with --documents line, "
        return "break its lines, each of which is a document (fold -s -w 1000 does), "
