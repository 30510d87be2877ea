"""One split on its way to disk: packed, written, accounted for."""

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
        self._documents = 0

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
        """Pack and write."""
        self._documents += len(documents)
        for sequences in self._layout.add(documents):
            self._writer.write(sequences)

    def finish(self, sources: list[SourceStamp], tokenizer_hash: str | None) -> Manifest:
        """Write the rest, the tokenizer and the manifest."""
        options, tokenizer, writer = self._options, self._tokenizer, self._writer
        for sequences in self._layout.finish():
            writer.write(sequences)
        if writer.sequences == 0:
            raise ValueError(self._why_empty())
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
                documents=self._documents,
                sequences=writer.sequences,
                tokens=int(writer.token_counts.sum()),
                truncated=self._layout.truncated,
                dropped=self._layout.dropped,
                unknown=0 if knows_all else int(writer.token_counts[tokenizer.unk_id]),
                left_out=self._layout.left_out if isinstance(self._layout, Pairs) else 0,
            ),
            sources=sources,
            options=as_recorded(options),
            prompts=self._form,
        )
        tokenizer.save(self._directory)
        manifest.write(self._directory)
        return manifest

    def _why_empty(self) -> str:
        if isinstance(self._layout, Pairs) and self._layout.left_out:
            return f"all {self._layout.left_out} pairs are too long for --length {self._options.length}; raise it"
        if self._documents and self._options.drop_last:
            return (
                f"the {self._documents} documents do not fill one sequence; shorten --length or leave out --drop-last"
            )
        if self.name == "valid":
            return "no document is held out: the corpus is too small for this --valid-fraction"
        return "no document is left to train on: --valid-last holds out all of them"
