"""What a prepared corpus says of itself: `manifest.json`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic.dataclasses import dataclass

from multimdm._complaints import explain
from multimdm._files import read_json
from multimdm._inert import shown
from multimdm.data.packing import Ends, Layout
from multimdm.data.sources import FileStamp
from multimdm.process.settings import PromptForm

FORMAT_VERSION = 1
NAME = "manifest.json"
_STRICT = pydantic.ConfigDict(extra="forbid")
NonNegative = Annotated[int, pydantic.Field(ge=0, lt=2**48)]
Positive = Annotated[int, pydantic.Field(gt=0, lt=2**32)]


@dataclass(frozen=True, config=_STRICT)
class Counts:
    """How much data there are."""

    documents: NonNegative
    sequences: NonNegative
    tokens: NonNegative
    """Valid positions, BOS and EOS included."""
    truncated: int
    """Documents of which the end was left out (padded layout)."""
    dropped: int
    """Tokens left out, by truncation or --drop-last."""
    unknown: int
    """Tokens that stand for text which the tokenizer does not know, and characters that it leaves out."""
    left_out: int = 0
    """Pairs that are too long (--too-long drop)."""
    first_lost: str | None = None
    """The first character that the tokenizer left out; all of `unknown` are such then."""


@dataclass(frozen=True, config=_STRICT)
class SourceStamp:
    """A source and its files."""

    name: str
    files: list[FileStamp]


@dataclass(frozen=True, config=_STRICT)
class Manifest:
    """Contents and origin of one directory of prepared data."""

    format_version: int
    split: str | None
    """'train' or 'valid'; None if nothing was held out."""
    layout: Layout
    ends: Ends
    length: Positive
    dtype: Literal["<u2", "<u4"]
    """The dtype of tokens, as numpy names it."""
    vocab_size: Positive
    tokenizer: str
    tokenizer_fingerprint: str
    tokenizer_files_sha256: str | None
    """Hash of the directory the tokenizer came from; None if it came from the Hub or was made from the corpus."""
    tokens_sha256: str
    """Hash of tokens.bin, to cite the data by."""
    counts: Counts
    sources: list[SourceStamp]
    options: dict[str, Any]
    """All that was asked for."""
    prompts: PromptForm | None = None
    """How the prompts of --layout pairs are written."""

    def write(self, directory: Path) -> None:
        """Write the manifest as indented JSON."""
        text = json.dumps(asdict(self), indent=2, ensure_ascii=False)
        (directory / NAME).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, directory: Path) -> "Manifest":
        """Read it back; errors name the file and the field."""
        path = directory / NAME
        if not path.is_file():
            inside = [split for split in ("train", "valid") if (directory / split / NAME).is_file()]
            if inside:
                names = " or ".join(str(directory / split) for split in inside)
                raise ValueError(f"{directory} holds the splits {' and '.join(inside)}; open {names}")
            raise ValueError(f"{directory} holds no prepared data ({NAME} is missing); make it with multimdm prepare")
        values = read_json(path, "; prepare the data again")
        version = values.get("format_version")
        if version != FORMAT_VERSION:
            raise ValueError(
                f"{path}: format version {shown(version)}, but this program reads version {FORMAT_VERSION}; "
                "prepare the data again"
            )
        try:
            return pydantic.TypeAdapter(cls).validate_python(values)
        except pydantic.ValidationError as error:
            complaint = explain(error, str(path), "field '{}'")
            raise ValueError(f"{complaint}; prepare the data again") from None


def is_prepared(directory: Path) -> bool:
    """Whether `multimdm prepare` wrote it, with or without held-out text."""
    return any((directory / part / NAME).is_file() for part in (".", "train"))
