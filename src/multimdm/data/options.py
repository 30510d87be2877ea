"""What `prepare` can be asked for: one schema for the command line, the library and the manifest."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from multimdm.data.detokenize import DETOKENIZERS
from multimdm.data.documents import Reading
from multimdm.data.mixture import parse_weight
from multimdm.data.packing import Ends, Layout
from multimdm.data.pairs import PairFields, Template
from multimdm.data.trained_tokenizers import bpe_size

_MOST_LENGTH = 2**20


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """All that shapes prepared data."""

    sources: tuple[str, ...] = ()
    """Text to prepare: files, folders, quoted patterns such as 'parts/*.jsonl.gz', or data sets of the Hugging Face Hub
    as hf:NAME:CONFIG@REVISION#SPLIT, where all but NAME may be left out. The name of a file says what it is: .jsonl and
    .json are JSON lines, .parquet is Parquet, all else is text; .gz, .xz and .zst are decompressed."""
    mix: tuple[str, ...] = ()
    """Instead of sources: WEIGHT:SOURCE pairs, such as 0.7:a.txt 0.3:b.jsonl. The weights are shares of tokens.
    Documents alternate so that every share is met to within one document, until a source has no more."""
    repeat: bool = False
    """With --mix: begin a source again when it is at its end, until all have been read once."""
    tokenizer: str = "bpe:8192"
    """A directory or Hub name of a Hugging Face tokenizer, bpe:SIZE (byte-pair encoding with SIZE tokens, trained on
    the sources), or chars (the characters of the sources)."""
    length: int = 128
    """Tokens per sequence, BOS and EOS included."""
    layout: Layout = "packed"
    """packed: documents one after the other with EOS between, cut where a sequence is full. padded: one document per
    sequence, cut if too long, padded if too short. pairs: a prompt and its answer per sequence, of which only the
    answer and its end are learnt; from JSON lines, Parquet files or Hub data sets."""
    template: Template = "auto"
    """With --layout pairs, how prompts are written: by the chat template of the tokenizer, or as they are (plain). auto
    takes the template if there is one."""
    prompt_field: str = "prompt"
    """With --layout pairs: key or column of the prompt. A record with 'messages' (role and content, the answer last)
    needs neither this nor the next."""
    answer_field: str = "answer"
    """With --layout pairs: key or column of the answer."""
    too_long: Literal["error", "drop"] = "error"
    """With --layout pairs: what becomes of a pair that does not fit into a sequence."""
    ends: Ends = "both"
    """Which of BOS and EOS enclose every sequence."""
    drop_last: bool = False
    """With --layout packed: leave out the last sequence if it is not full (it is padded otherwise)."""
    documents: Literal["line", "paragraph", "file"] = "line"
    """In text files, what one document is: a line, a paragraph (up to a blank line), or the whole file (which is
    encoded in one go and takes memory of about 150 times its size)."""
    separator: str | None = None
    """In text files, a line that ends a document, such as '<|endoftext|>'; instead of --documents."""
    field: str = "text"
    """Where the text is in JSON lines, Parquet files and Hub data sets: key or column."""
    split: str = "train"
    """Which split of Hub data sets to read."""
    detokenize: Literal["lm1b", "wikitext", "ptb"] | None = None
    """Undo the spacing that these corpora have around punctuation."""
    max_documents: int | None = None
    """Stop after so many documents."""
    valid: tuple[str, ...] = ()
    """Sources to hold out: the output then has the folders train and valid."""
    valid_fraction: float | None = None
    """Hold out this share of the documents, drawn from all of the text: the output then has the folders train and
    valid. 0 holds out nothing."""
    valid_last: int | None = None
    """Hold out the last so many documents: the output then has the folders train and valid."""

    def check(self) -> None:
        """Say what is wrong before any work is done."""
        if bool(self.sources) == bool(self.mix):
            raise ValueError("give the text to prepare either as sources or with --mix WEIGHT:SOURCE ...")
        for part in self.mix:
            parse_weight(part)
        if self.repeat and not self.mix:
            raise ValueError("--repeat is for --mix only")
        if self.repeat and (self.valid_fraction or self.valid_last is not None):
            raise ValueError("--repeat would put held-out documents into the training data too; hold out with --valid")
        both = set(self.valid) & {*self.sources, *(part.partition(":")[2] for part in self.mix)}
        if both:
            raise ValueError(f"--valid must be other text than what is trained on; {min(both)} is both")
        if self.length > _MOST_LENGTH:
            raise ValueError(f"--length must be at most {_MOST_LENGTH:,}; got {self.length:,}")
        if self.tokenizer.startswith("bpe:"):
            bpe_size(self.tokenizer)
        if self.room < 1:
            least = self.length - self.room + 1
            raise ValueError(f"--length must be at least {least} with --ends {self.ends}; got {self.length}")
        if self.drop_last and self.layout != "packed":
            raise ValueError("--drop-last is for --layout packed only")
        self._check_pairs()
        if self.separator is not None and (not self.separator or "\n" in self.separator):
            raise ValueError(f"--separator must be the text of one line; got {self.separator!r}")
        if self.detokenize is not None and self.detokenize not in DETOKENIZERS:
            raise ValueError(f"--detokenize must be one of {', '.join(DETOKENIZERS)}; got {self.detokenize}")
        for name in ("max_documents", "valid_last"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1; got {value}")
        if self.valid_fraction is not None and not (
            math.isfinite(self.valid_fraction) and 0 <= self.valid_fraction < 1
        ):
            raise ValueError(f"--valid-fraction must be between 0 and 1; got {self.valid_fraction}")
        if bool(self.valid) + bool(self.valid_fraction) + (self.valid_last is not None) > 1:
            raise ValueError("give only one of --valid, --valid-fraction and --valid-last")

    def _check_pairs(self) -> None:
        if self.layout != "pairs":
            for name, usual in (("template", "auto"), ("prompt_field", "prompt"), ("answer_field", "answer")):
                if getattr(self, name) != usual:
                    raise ValueError(f"--{name.replace('_', '-')} is for --layout pairs only")
            if self.too_long != "error":
                raise ValueError("--too-long is for --layout pairs only")
            return
        if self.mix:
            raise ValueError("--mix is not for --layout pairs; give the files one after the other as sources")
        if self.ends not in ("both", "eos"):
            raise ValueError(f"--ends must be both or eos with --layout pairs: answers end by EOS; got {self.ends}")
        if self.detokenize is not None:
            raise ValueError("--detokenize is not for --layout pairs")

    @property
    def holds_out(self) -> bool:
        """Whether there is a validation split."""
        return bool(self.valid) or bool(self.valid_fraction) or self.valid_last is not None

    @property
    def room(self) -> int:
        """Tokens per sequence without BOS and EOS."""
        return self.length - {"both": 2, "bos": 1, "eos": 1, "none": 0}[self.ends]

    @property
    def fields(self) -> PairFields:
        """Where pairs are found in a record."""
        return PairFields(self.prompt_field, self.answer_field)

    @property
    def reading(self) -> Reading:
        """How documents are found in files."""
        return Reading(self.documents, self.separator, self.field)


PRESETS: dict[str, dict[str, Any]] = {
    # Sentences, detokenised, packed: the "wrapped" LM1B. The test split is what papers report on. (This copy on the Hub
    # is plain data; the original is a script, which recent versions of `datasets` refuse to run.)
    "lm1b": {
        "sources": ("hf:dvruette/lm1b",),
        "valid": ("hf:dvruette/lm1b#test",),
        "tokenizer": "bert-base-uncased",
        "length": 128,
        "layout": "packed",
        "detokenize": "lm1b",
    },
    # OpenWebText has no validation split: MDLM and DUO hold out the last 100,000 documents. (A copy in Parquet of
    # hf:Skylion007/openwebtext, which is a script; whether documents are in the original's order was not checked.)
    "openwebtext": {
        "sources": ("hf:dylanebert/openwebtext",),
        "valid_last": 100_000,
        "tokenizer": "gpt2",
        "length": 1024,
        "layout": "packed",
    },
}
"""Name (as in --preset) -> options of `PrepareOptions` that differ from the defaults."""


def preset(name: str) -> dict[str, Any]:
    """The options of a preset."""
    if name not in PRESETS:
        raise ValueError(f"--preset {name}: there is none of that name; the presets are {', '.join(PRESETS)}")
    return PRESETS[name]
