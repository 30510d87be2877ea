"""Cells of prepared data: computed once for a teacher, before the first step, and read from disk ever after."""

import hashlib
import time
from collections.abc import Callable

import torch
from torch import Tensor

from multimdm.data.cells import CellFiles, CellsOf
from multimdm.data.prepared import Example
from multimdm.data.storage import CELLS
from multimdm.evaluation.teachers import QuantileTeacher
from multimdm.evaluation.teachers.base import cells_of_text
from multimdm.process.quantile import Cells, Order
from multimdm.training.display import clock
from multimdm.training.engine import Engine
from multimdm.training.sources import PreparedSource

_EVERY = 15.0
"""Seconds between words on how far it is."""


class StoredCells:
    """The cells of the training split, in the folder `cells` beside its tokens."""

    def __init__(
        self,
        teacher: QuantileTeacher,
        order_name: str,
        order: Order,
        source: PreparedSource,
        engine: Engine,
        say: Callable[[str], None],
        asked: Callable[[], bool] = lambda: False,
    ) -> None:
        self._teacher, self._source, self._engine, self._say = teacher, source, engine, say
        self._asked = asked
        self._order: Order = order
        data = source.training
        whose = CellsOf(
            teacher=teacher.name,
            teacher_fingerprint=teacher.fingerprint,
            data_fingerprint=data.fingerprint,
            order=order_name if isinstance(order, str) else f"{order_name} {_fingerprint(order)}",
            sequences=len(data),
            length=source.length,
        )
        self.files = CellFiles.open(data.directory / CELLS / whose.folder, whose)
        # Agreed upon: a rank that comes late must not find that the others have begun.
        self._ready = bool(engine.agree(not self.files.missing()))

    def ready(self) -> bool:
        """Whether all parts are there."""
        return self._ready

    def prepare(self) -> str | None:
        """Compute the parts that are missing, each by one rank; say how long it will take. All ranks must call it.

        Asked to stop, a rank finishes its part; then it is told how many parts there are.
        """
        # Agreed upon first: a rank that is ahead must not change what the others find missing.
        missing = self._engine.agree(self.files.missing())
        own = missing[self._engine.rank :: self._engine.ranks]
        begun = said = time.monotonic()
        stopped = False
        for done, part in enumerate(own, start=1):
            rows = self.files.rows(part)
            example = self._source.training[rows.start : rows.stop]
            drawn = self._source.drawn(example.valid)
            numbers = range(rows.start, rows.stop)
            self.files.write(part, cells_of_text(self._teacher, example.ids, drawn, self._order, numbers))
            now = time.monotonic()
            if self._engine.is_main and (now - said > _EVERY or done in (1, len(own))):
                left = (now - begun) / done * (len(own) - done)
                parts = f"{done}/{len(own)} parts, {clock(left)} left"
                self._say(f"cells of the texts, by teacher {self._teacher.name}: {parts}")
                said = now
            if self._asked() and done < len(own):
                stopped = True
                break
        self._ready = int(self._engine.sum(torch.tensor(int(stopped)))) == 0  # also waits for the others
        if self._ready:
            return None
        return f"{self.files.parts - len(self.files.missing())} of {self.files.parts} parts of the cells"

    def of(self, first: int, example: Example) -> Cells:
        """The cells of the sequences with these numbers in the run."""
        return self.files.read(self._source.rows(first, len(example.ids)))


def _fingerprint(ranks: Tensor) -> str:
    """A hash of a table: another version of what made it may make another."""
    return hashlib.sha256(ranks.cpu().numpy().tobytes()).hexdigest()[:16]
