"""Documents out of one local file: lines, paragraphs, whole files, JSON lines, Parquet rows; and whole records.

Text is UTF-8; lines end in LF or CRLF, and the end is no part of the line. Everything is read as a stream: memory is
that of a block, or of the longest document.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from multimdm.data.files import LocalFile, read_blocks

_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
"""Byte-order marks, longer ones first."""
_LOOKED_AT = 4096
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\x1b")


@dataclass(frozen=True)
class Reading:
    """How documents are found in a source."""

    documents: Literal["line", "paragraph", "file"] = "line"
    """In text files, a document is a line, a paragraph (lines up to a blank one), or the whole file."""
    separator: str | None = None
    """In text files, a line that reads exactly so ends a document; it comes before `documents`."""
    field: str = "text"
    """JSON key, Parquet column or data set column that holds the text."""


def read_documents(file: LocalFile, reading: Reading, advance: Callable[[int], None]) -> Iterator[str]:
    """The documents of one file in order, blank ones included."""
    if file.format == "parquet":
        return _parquet_documents(file, reading.field, advance)
    lines = lines_of(file, advance)
    if file.format == "json":
        return _json_documents(file, reading.field, lines)
    if reading.separator is not None:
        separator = reading.separator
        return _joined(lines, lambda line: line == separator)
    if reading.documents == "paragraph":
        return _joined(lines, lambda line: not line.strip())
    if reading.documents == "file":
        return _joined(lines, lambda line: False)
    return lines


def lines_of(file: LocalFile, advance: Callable[[int], None]) -> Iterator[str]:
    """Lines without their ends; bytes that are not UTF-8 are an error with the line's number."""
    number, rest = 0, []  # lines so far; pieces of a line whose end has not come yet
    for block in read_blocks(file, advance):
        complete, newline, tail = block.rpartition(b"\n")
        if not newline:
            rest.append(block)
            continue
        lines = _decode(file, b"".join([*rest, complete]), number).split("\n")
        rest = [tail]
        number += len(lines)
        yield from (line.removesuffix("\r") for line in lines)
    if last := b"".join(rest):
        yield _decode(file, last, number).removesuffix("\r")


def _decode(file: LocalFile, data: bytes, lines_before: int) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = lines_before + data.count(b"\n", 0, error.start) + 1
        advice = other_than_text(data) or "convert the file, for example with iconv -f LATIN1 -t UTF-8"
        raise ValueError(
            f"{file.path}, line {line}: byte 0x{data[error.start]:02x} is not valid UTF-8; {advice}"
        ) from error
    if "\0" in text:
        line = lines_before + text.count("\n", 0, text.index("\0")) + 1
        advice = other_than_text(data) or "remove it, for example with tr -d '\\000'"
        raise ValueError(f"{file.path}, line {line}: a NUL byte, which no text has; {advice}")
    return text if lines_before else text.removeprefix("\ufeff")  # the byte-order mark that some editors write


def _joined(lines: Iterator[str], ends: Callable[[str], bool]) -> Iterator[str]:
    """Runs of lines between those that end a document."""
    run: list[str] = []
    for line in lines:
        if ends(line):
            yield "\n".join(run)
            run = []
        else:
            run.append(line)
    yield "\n".join(run)


def json_records(file: LocalFile, lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Every line's object, with where it stands and the line itself."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{file.path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: not JSON ({error}); every line must be one JSON object") from error
        if not isinstance(record, dict):
            raise ValueError(f"{where}: a JSON {type(record).__name__}; every line must be one JSON object")
        yield where, record, line


def _json_documents(file: LocalFile, field: str, lines: Iterator[str]) -> Iterator[str]:
    for where, record, line in json_records(file, lines):
        if field not in record:
            raise ValueError(f"{where}: no field '{field}', only {_names(record)}; choose one with --field")
        text = record[field]
        if not isinstance(text, str):
            raise ValueError(
                f"{where}: field '{field}' is {json.dumps(text)[:40]}, not text; choose another with --field"
            )
        if "\\u" in line:
            check_surrogates(text, where)
        yield text


def check_surrogates(text: str, where: str) -> None:
    """JSON can spell half of a surrogate pair, which is no character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: {text[error.start]!r} is half a surrogate pair, not a character") from error


def _parquet_documents(file: LocalFile, column: str, advance: Callable[[int], None]) -> Iterator[str]:
    for where, record in _parquet_records(file, advance, column):
        if record[column] is None:
            raise ValueError(f"{where}: column '{column}' is null, not text")
        yield record[column]


def _names(names) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"


class Record(NamedTuple):
    """One of a file or a data set, with all its fields: for pairs, which are more than one text."""

    where: str
    """Its place, for errors."""
    values: dict[str, Any]


def read_records(file: LocalFile, advance: Callable[[int], None]) -> Iterator[Record]:
    """The records of one file in order; text files have none."""
    if file.format == "parquet":
        return _parquet_records(file, advance)
    if file.format == "json":
        return (Record(where, values) for where, values, _ in json_records(file, lines_of(file, advance)))
    raise ValueError(f"{file.path}: pairs come from JSON lines (.jsonl) or Parquet files, not from text")


def _parquet_records(file: LocalFile, advance: Callable[[int], None], column: str | None = None) -> Iterator[Record]:
    """All rows with all columns, or with one alone, which must hold text."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ValueError("Parquet files need the package pyarrow: pip install 'multimdm[train]'") from error
    size, row, done = file.path.stat().st_size, 0, 0
    try:
        with parquet.ParquetFile(file.path) as table:
            if column is not None:
                _check_column(file, table.schema_arrow, column)
            for batch in table.iter_batches(batch_size=1024, columns=None if column is None else [column]):
                for values in batch.to_pylist():
                    row += 1
                    yield Record(f"{file.path}, row {row}", values)
                reached = size * row // table.metadata.num_rows
                advance(reached - done)
                done = reached
    except UnicodeDecodeError as error:
        place = "a column" if column is None else f"column '{column}'"
        raise ValueError(f"{file.path}, after row {row}: {place} is not valid UTF-8 ({error})") from error
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{file.path}: damaged Parquet file ({error}); fetch it again") from error


def _check_column(file: LocalFile, schema: Any, column: str) -> None:
    """Refuse a column that is missing or holds no text."""
    import pyarrow

    if column not in schema.names:
        raise ValueError(f"{file.path}: no column '{column}', only {_names(schema.names)}; choose one with --field")
    kind = schema.field(column).type
    if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        raise ValueError(f"{file.path}: column '{column}' is of type {kind}, not text; choose another with --field")


def other_than_text(data: bytes) -> str | None:
    """Advice, if the bytes are UTF-16 or UTF-32, or no text; None if they may be text in some 8-bit encoding."""
    head = data[:_LOOKED_AT]
    found = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
    if found is None:
        # In UTF-16 every other byte of Latin text is NUL: the second of a pair, or the first.
        halves = {"UTF-16LE": (head[0::2], head[1::2]), "UTF-16BE": (head[1::2], head[0::2])}
        for name, (text, nul) in halves.items():
            if nul.count(0) > 0.7 * len(nul) and text.count(0) < 0.1 * len(text):
                found = name
    if found is not None:
        return f"the file is text in {found}: convert it with iconv -f {found} -t UTF-8"
    strange = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in head)
    if strange > 0.01 * len(head):
        return "it is a binary file, not text: give text, JSON lines or Parquet"
    return None
