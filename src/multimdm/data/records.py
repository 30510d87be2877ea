"""Records out of one local file, with all their fields: for pairs, which are more than one text."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from multimdm.data.documents import json_records, lines_of
from multimdm.data.files import LocalFile


class Record(NamedTuple):
    """One of a file or a data set."""

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


def _parquet_records(file: LocalFile, advance: Callable[[int], None]) -> Iterator[Record]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ValueError("Parquet files need the package pyarrow: pip install 'multimdm[train]'") from error
    size, row, done = file.path.stat().st_size, 0, 0
    try:
        with parquet.ParquetFile(file.path) as table:
            for batch in table.iter_batches(batch_size=1024):
                for values in batch.to_pylist():
                    row += 1
                    yield Record(f"{file.path}, row {row}", values)
                reached = size * row // table.metadata.num_rows
                advance(reached - done)
                done = reached
    except (UnicodeDecodeError, pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{file.path}: damaged Parquet file ({error}); fetch it again") from error
