"""Where text comes from: local files, or a data set by its Hugging Face name, as a stream of documents.

    a.txt   folder/   'parts/*.jsonl.gz'   hf:NAME   hf:NAME:CONFIG   hf:NAME@REVISION   hf:NAME#SPLIT

Documents that are blank (nothing but white space) are dropped everywhere.
"""

import hashlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from multimdm._inert import reason
from multimdm.data.documents import Reading, read_documents, read_records
from multimdm.data.files import LocalFile, find_files
from multimdm.data.hub_silence import hub_silence
from multimdm.data.pairs import Pair, PairFields, pair_of


class UnreachableError(ValueError):
    """A data set of the Hub cannot be opened, perhaps only now."""


@dataclass(frozen=True)
class FileStamp:
    """What a local file was when it was read."""

    path: str
    size: int
    mtime_ns: int
    sha256: str | None = None
    """Hash of the bytes; None until it is asked for."""

    @classmethod
    def of(cls, path: Path) -> "FileStamp":
        """Size and time, which cost nothing."""
        status = path.stat()
        return cls(str(path), status.st_size, status.st_mtime_ns)

    def hashed(self) -> "FileStamp":
        """The same with the hash."""
        with open(self.path, "rb") as file:
            return replace(self, sha256=hashlib.file_digest(file, "sha256").hexdigest())

    def unchanged(self, before: "FileStamp") -> bool:
        """Whether the file is still what it was: by size and time or, if only the time differs, by hash."""
        if (self.path, self.size) != (before.path, before.size):
            return False
        return self.mtime_ns == before.mtime_ns or self.hashed().sha256 == before.sha256


@dataclass(frozen=True)
class LocalSource:
    """One or more local files."""

    name: str
    files: tuple[LocalFile, ...]
    reading: Reading

    @property
    def size(self) -> int | None:
        """Bytes of the files as they are on disk."""
        return sum(stamp.size for stamp in self.stamps())

    @property
    def parts(self) -> int:
        """How many parts can be read one by one: the files."""
        return len(self.files)

    def documents(self, advance: Callable[[int], None], part: int | None = None) -> Iterator[str]:
        """Documents that are not blank, of all files in order or of one; `advance` is called with the bytes read."""
        for file in self._read(part):
            yield from _not_blank(read_documents(file, self.reading, advance))

    def pairs(self, fields: PairFields, advance: Callable[[int], None], part: int | None = None) -> Iterator[Pair]:
        """Prompts and answers, of all files in order or of one."""
        records = (record for file in self._read(part) for record in read_records(file, advance))
        return (pair_of(record.values, fields, record.where) for record in records)

    def _read(self, part: int | None) -> tuple[LocalFile, ...]:
        return self.files if part is None else self.files[part : part + 1]

    def stamps(self) -> list[FileStamp]:
        """The stamp of each file."""
        return [FileStamp.of(file.path) for file in self.files]


@dataclass(frozen=True)
class HubSource:
    """A data set by its Hugging Face name, streamed."""

    name: str
    dataset: str
    config: str | None
    revision: str | None
    """A branch, tag or commit; the newest state unless given."""
    split: str
    field: str

    @property
    def size(self) -> int | None:
        """None: the size of a stream is not known."""
        return None

    @property
    def parts(self) -> int:
        """One: only a whole stream can be opened."""
        return 1

    def documents(self, advance: Callable[[int], None], part: int | None = None) -> Iterator[str]:
        """Row after row."""
        return _not_blank(self._rows())

    def pairs(self, fields: PairFields, advance: Callable[[int], None], part: int | None = None) -> Iterator[Pair]:
        """Row after row."""
        where = (f"source '{self.name}', row {number}" for number in count(1))
        return (pair_of(values, fields, place) for place, values in zip(where, self._open(), strict=False))

    def stamps(self) -> list[FileStamp]:
        """None: what the Hub holds is known by its name only."""
        return []

    def _rows(self) -> Iterator[str]:
        for number, record in enumerate(self._open()):
            if self.field not in record:
                columns = ", ".join(f"'{name}'" for name in record)
                raise ValueError(f"source '{self.name}': no column '{self.field}', only {columns}; choose with --field")
            text = record[self.field]
            if not isinstance(text, str):
                raise ValueError(f"source '{self.name}', row {number + 1}: column '{self.field}' is not text")
            yield text

    def _open(self) -> Any:
        if importlib.util.find_spec("datasets") is None:
            raise ValueError("hf: sources need the package datasets: pip install 'multimdm[train]'")
        here = Path(self.dataset).exists()  # the package also reads directories
        # Asked before the package is imported, which takes seconds.
        if not here and (why := hub_silence(self.dataset, kind="dataset")) is not None:
            raise self._closed(why)
        import datasets

        try:
            return datasets.load_dataset(
                self.dataset, self.config, split=self.split, revision=self.revision, streaming=True
            )
        except Exception as error:  # whatever the Hub, the network or the data set's own files raise
            raise self._closed(reason(error)) from error

    def _closed(self, why: str) -> UnreachableError:
        where = f"split '{self.split}'" + (f", revision '{self.revision}'" if self.revision is not None else "")
        return UnreachableError(
            f"source '{self.name}': cannot open data set '{self.dataset}', {where} ({why}); check the name and "
            f"the connection, or give local files. {_WRITTEN}"
        )


_WRITTEN = "A data set is written hf:NAME:CONFIG@REVISION#SPLIT, of which all but the name may be left out"


def _not_blank(documents: Iterator[str]) -> Iterator[str]:
    return (text for text in documents if text and not text.isspace())


Source = LocalSource | HubSource
"""A stream of documents that can be started anew."""


def open_source(name: str, reading: Reading, split: str = "train") -> Source:
    """The source that `name` names; says at once if files are missing, empty or not what their names say."""
    if not name.startswith("hf:"):
        return LocalSource(name, tuple(find_files(name)), reading)
    rest, _, own_split = name.removeprefix("hf:").partition("#")
    rest, _, revision = rest.partition("@")
    dataset, _, config = rest.partition(":")
    if not dataset:
        raise ValueError(f"source '{name}': there is no name in it. {_WRITTEN}")
    return HubSource(name, dataset, config or None, revision or None, own_split or split, reading.field)
