"""Cells of prepared data on disk: where the numbers of every token lie, as a teacher has them (`process/quantile.py`).

They are computed once for a teacher and a corpus, part by part; what is drawn within them is new in every epoch. A
directory holds manifest.json, which says whose cells they are, and files

cells-00000.bin   [1,024, L, 2]   lower edge and width, float32, little-endian; the last one may be shorter

each of which appears whole or not at all, so that several processes may share the work, and it can be taken up again.
Rounded to float32 an edge is off by 3e-8 at most, which moves one number in a hundred thousand to the next of 256
buckets.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from multimdm._checks import require
from multimdm._files import whole_file, write_text
from multimdm.process.quantile import Cells

ROWS = 1024
"""Sequences of a part."""
_DTYPE = np.dtype("<f4")
_MANIFEST, _VERSION = "manifest.json", 1


def as_stored(cells: Cells) -> Cells:
    """The cells, rounded as they would be on disk."""
    return Cells(cells.lower.float().double(), cells.width.float().double())


@dataclass(frozen=True)
class CellsOf:
    """Whose cells they are. Equal ones can be used, others cannot."""

    teacher: str
    """Its name, for people."""
    teacher_fingerprint: str
    data_fingerprint: str
    order: str
    """The order of the vocabulary within the cells, or the fingerprint of a table."""
    sequences: int
    length: int
    version: int = _VERSION

    @property
    def folder(self) -> str:
        """A name of its own, but for the teacher's name, which may change."""
        settings = {name: value for name, value in asdict(self).items() if name != "teacher"}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


class CellFiles:
    """The cells of a corpus, as far as they are there."""

    def __init__(self, directory: Path, whose: CellsOf) -> None:
        """Use `CellFiles.open`."""
        self.directory, self.whose = directory, whose
        self._open: dict[int, np.ndarray] = {}

    @classmethod
    def open(cls, directory: Path, whose: CellsOf) -> "CellFiles":
        """Begin them, or go on; a directory with the cells of something else is refused."""
        manifest = directory / _MANIFEST
        if not manifest.is_file():
            directory.mkdir(parents=True, exist_ok=True)
            write_text(manifest, json.dumps(asdict(whose), indent=2) + "\n")
            return cls(directory, whose)
        try:
            found = json.loads(manifest.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ValueError(f"{manifest} is no JSON object; remove {directory}, to have the cells computed again")
        for name, value in asdict(whose).items():
            require(
                name == "teacher" or found.get(name) == value,
                f"{directory} has the cells of another {name.replace('_', ' ')} ({found.get(name)!r}, wanted {value!r})"
                "; remove it, to have them computed again",
            )
        return cls(directory, whose)

    @property
    def parts(self) -> int:
        """How many there are, finished or not."""
        return -(-self.whose.sequences // ROWS)

    def rows(self, part: int) -> range:
        """The sequences of a part."""
        return range(part * ROWS, min((part + 1) * ROWS, self.whose.sequences))

    def missing(self) -> list[int]:
        """The parts that are still to be computed."""
        return [part for part in range(self.parts) if not self._is_there(part)]

    def write(self, part: int, cells: Cells) -> None:
        """Write one part whole or not at all."""
        table = torch.stack([cells.lower, cells.width], dim=-1)
        rows = len(self.rows(part))
        require(
            table.shape == (rows, self.whose.length, 2),
            f"part {part} must have the cells of {rows} sequences of {self.whose.length}; got {list(table.shape)}",
        )
        with whole_file(self._path(part)) as partial:
            table.cpu().numpy().astype(_DTYPE).tofile(partial)

    def read(self, rows: Int64[Tensor, " n"]) -> Cells:
        """The cells of these sequences, [n, L]."""
        numbers = rows.numpy()
        table = np.empty((len(numbers), self.whose.length, 2), dtype=_DTYPE)
        for part in np.unique(numbers // ROWS):
            here = numbers // ROWS == part
            table[here] = self._table(int(part))[numbers[here] % ROWS]
        lower, width = torch.from_numpy(table).double().unbind(-1)
        return Cells(lower, width)

    def _table(self, part: int) -> np.ndarray:
        """A part, mapped into memory."""
        if part not in self._open:
            require(self._is_there(part), f"{self._path(part)} is missing or cut off: have the cells computed again")
            shape = len(self.rows(part)), self.whose.length, 2
            self._open[part] = np.memmap(self._path(part), _DTYPE, "r", shape=shape)
        return self._open[part]

    def _is_there(self, part: int) -> bool:
        path, size = self._path(part), len(self.rows(part)) * self.whose.length * 2 * _DTYPE.itemsize
        return path.is_file() and path.stat().st_size == size

    def _path(self, part: int) -> Path:
        return self.directory / f"cells-{part:05d}.bin"
