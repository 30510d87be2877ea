"""Local files as streams of bytes: found by path, folder or pattern, decompressed, and checked against their names.

A name says what is inside: `.jsonl`, `.ndjson` and `.json` are JSON lines, `.parquet` is Parquet, anything else is
text; `.gz`, `.xz` and `.zst` after that mean compression. A file whose first bytes contradict its name is refused,
since the alternative is a corpus of rubbish.
"""

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Literal

BLOCK = 1 << 20
"""Bytes read at once."""

_COMPRESSIONS = {".gz": "gzip", ".xz": "xz", ".zst": "zstandard"}
_FORMATS: dict[str, Literal["text", "json", "parquet"]] = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "parquet",
}
_MAGIC = {
    "gzip": b"\x1f\x8b",
    "xz": b"\xfd7zXZ\x00",
    "zstandard": b"\x28\xb5\x2f\xfd",
    "Parquet": b"PAR1",
    "zip": b"PK\x03\x04",
    "bzip2": b"BZh",
}
_ENDING = {kind: suffix for suffix, kind in _COMPRESSIONS.items()} | {"Parquet": ".parquet"}


@dataclass(frozen=True)
class LocalFile:
    """A file, and what its name says is in it."""

    path: Path
    format: Literal["text", "json", "parquet"]
    compression: str | None
    """'gzip', 'xz', 'zstandard' or None."""

    @classmethod
    def of(cls, path: Path) -> "LocalFile":
        """Read the name; refuse a file that is empty or begins otherwise than its name promises."""
        compression = _COMPRESSIONS.get(path.suffix.lower())
        inner = Path(path.stem) if compression else path
        file = cls(path, _FORMATS.get(inner.suffix.lower(), "text"), compression)
        file.check()
        return file

    def check(self) -> None:
        """Compare the first bytes with the name."""
        if self.format == "parquet" and self.compression:
            raise ValueError(
                f"{self.path}: Parquet compresses its columns itself and cannot be read inside {self.compression}; "
                "decompress it first"
            )
        with open(self.path, "rb") as stream:
            head = stream.read(8)
        if not head:
            raise ValueError(f"{self.path} is empty")
        found = next((kind for kind, magic in _MAGIC.items() if head.startswith(magic)), None)
        expected = "Parquet" if self.format == "parquet" else self.compression
        if expected and found != expected:
            raise ValueError(
                f"{self.path} is not {expected}, though its name ends in {self.path.suffix}; "
                f"{_advice(found) if found else 'rename it after what it is, or fetch it again'}"
            )
        if not expected and found:
            raise ValueError(f"{self.path} is a {found} file, though its name does not say so; {_advice(found)}")


def _advice(found: str) -> str:
    """What to do about a file of this kind under a wrong name."""
    if found in _ENDING:
        return f"it is {found}: give it a name that ends in {_ENDING[found]}"
    return f"unpack it first ({found} archives are not read)"


def find_files(pattern: str) -> list[LocalFile]:
    """The file, the files of a folder (with its subfolders), or those that match a pattern, in order of their names.

    Hidden files are passed over.
    """
    path = Path(pattern)
    if path.is_file():
        return [LocalFile.of(path)]
    if path.is_dir():
        found = [
            inside
            for inside in sorted(path.rglob("*"))
            if inside.is_file() and not any(part.startswith(".") for part in inside.relative_to(path).parts)
        ]
        if not found:
            raise ValueError(f"source '{pattern}': the folder holds no files")
    elif has_magic(pattern):
        found = [inside for inside in map(Path, sorted(glob(pattern, recursive=True))) if inside.is_file()]
        if not found:
            raise ValueError(f"source '{pattern}': no file matches the pattern")
    else:
        raise ValueError(
            f"source '{pattern}': there is no such file or folder; a data set of the Hugging Face Hub is named hf:NAME"
        )
    return [LocalFile.of(inside) for inside in found]


def read_blocks(file: LocalFile, advance: Callable[[int], None]) -> Iterator[bytes]:
    """The decompressed bytes in blocks; `advance` is told how many bytes of the file itself have been used."""
    done = 0
    with open(file.path, "rb") as raw:
        try:
            for block in _decompressed(raw, file.compression):
                if raw.tell() > done:
                    advance(raw.tell() - done)
                    done = raw.tell()
                yield block
        except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
            raise _damaged(file, error) from error


def _damaged(file: LocalFile, error: Exception | str) -> ValueError:
    return ValueError(f"{file.path}: the {file.compression} data are damaged or cut short ({error}); fetch it again")


def _decompressed(raw, compression: str | None) -> Iterator[bytes]:
    if compression == "zstandard":
        yield from _zstandard(raw)
        return
    opened = {"gzip": gzip.open, "xz": lzma.open, None: nullcontext}
    with opened[compression](raw) as stream:
        while block := stream.read(BLOCK):
            yield block


def _zstandard(raw) -> Iterator[bytes]:
    """Frame after frame. (The library's own reader takes a file that is cut short for a whole one.)"""
    try:
        import zstandard
    except ImportError as error:
        raise ValueError(".zst files need the package zstandard: pip install 'multimdm[train]'") from error
    whole = True
    decoder = zstandard.ZstdDecompressor().decompressobj()
    try:
        while data := raw.read(BLOCK):
            while data:
                if whole:
                    decoder, whole = zstandard.ZstdDecompressor().decompressobj(), False
                if block := decoder.decompress(data):
                    yield block
                whole, data = decoder.eof, decoder.unused_data if decoder.eof else b""
    except zstandard.ZstdError as error:
        raise EOFError(str(error)) from error
    if not whole:
        raise EOFError("the last frame has no end")
