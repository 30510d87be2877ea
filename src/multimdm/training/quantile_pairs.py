"""Texts and the numbers that draw them: quantile noise for training (`process/quantile.py`).

Either the texts are given, and numbers are drawn within the cells of their tokens, anew in every epoch; or numbers are
given, and the teacher writes the texts that they draw. Numbers are functions of their text's number in the run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm.data.cells import as_stored
from multimdm.data.prepared import Example
from multimdm.evaluation.teachers import QuantileTeacher
from multimdm.evaluation.teachers.base import cells_of_text
from multimdm.process import MultiMask, Streams
from multimdm.process.quantile import Cells, Order, buckets, numbers
from multimdm.training.engine import Engine
from multimdm.training.settings import QuantileSettings
from multimdm.training.sources import PreparedSource, Source
from multimdm.training.step_plan import derive
from multimdm.training.stored_cells import StoredCells

_BLOCK = 256
"""Texts whose cells are computed together."""
_TOGETHER = 64
"""Texts that are written at once: a constant, so that they are the same with any number of ranks."""
_TEXTS, _NUMBER = "written.texts", "written.number"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Quantiles:
    """How texts are tied to numbers."""

    settings: QuantileSettings
    teacher: QuantileTeacher
    order: Order


@runtime_checkable
class CellSource(Protocol):
    """The cells of training texts, by their numbers in the run."""

    def ready(self) -> bool:
        """Whether they can be asked for."""
        ...

    def prepare(self) -> str | None:
        """Make them ready; None, or what was saved when the run was asked to stop. All ranks must call it."""
        ...

    def of(self, first: int, example: Example) -> Cells:
        """The cells of the texts from this number on."""
        ...


class FreshCells:
    """The cells of texts that occur once: computed as they come, a block at a time."""

    def __init__(self, quantiles: Quantiles, source: Source) -> None:
        self._quantiles, self._source = quantiles, source
        self._block: tuple[int, Cells] | None = None

    def ready(self) -> bool:
        """Whether there is nothing to prepare: always."""
        return True

    def prepare(self) -> None:
        """There is nothing to prepare."""

    def of(self, first: int, example: Example) -> Cells:
        """The cells, from the blocks that have them."""
        last = first + len(example.ids) - 1
        found = [self._cells(number) for number in range(first // _BLOCK, last // _BLOCK + 1)]
        lower, width = (torch.cat(column) for column in zip(*found, strict=True))
        here = slice(first % _BLOCK, first % _BLOCK + len(example.ids))
        return Cells(lower[here], width[here])

    def _cells(self, number: int) -> Cells:
        if self._block is None or self._block[0] != number:
            found = self._computed(number * _BLOCK)
            self._block = number, found
        return self._block[1]

    def _computed(self, first: int) -> Cells:
        teacher, order, source = self._quantiles.teacher, self._quantiles.order, self._source
        if not isinstance(source, PreparedSource):
            block = source.train(first, _BLOCK)
            return cells_of_text(teacher, block.ids, block.valid, order, range(first, first + _BLOCK))
        rows = source.rows(first, _BLOCK)
        block = source.training[rows.numpy()]
        return as_stored(cells_of_text(teacher, block.ids, source.drawn(block.valid), order, rows.tolist()))


class QuantilePairs:
    """Given texts, and x_1 from numbers within their cells."""

    def __init__(self, cells: CellSource, process: MultiMask, source: Source, seed: int) -> None:
        self._cells, self._process, self._source = cells, process, source
        self._seed = derive(seed, "quantile numbers")

    def due(self, first: int) -> bool:
        """Whether cells are still to be computed."""
        return not self._cells.ready()

    def refresh(self, first: int) -> str | None:
        """Compute them, or as many as there is time for before the run is to stop. All ranks must call it."""
        return self._cells.prepare()

    def train(self, first: int, num: int) -> tuple[Example, Int64[Tensor, "num L"]]:
        """The texts number first .. first + num - 1, and x_1 of each."""
        example = self._source.train(first, num)
        u = numbers(self._cells.of(first, example), Streams.spawn(self._seed, num, first))
        return example, masks_of(u, self._process)

    def state(self) -> dict[str, Tensor]:
        """Nothing: all is a function of the texts' numbers."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up nothing."""


class WrittenPairs:
    """Given numbers, and the texts that the teacher writes by them, a set at a time."""

    def __init__(self, quantiles: Quantiles, engine: Engine, process: MultiMask, source: Source, seed: int) -> None:
        self._quantiles, self._engine, self._process, self._source = quantiles, engine, process, source
        self._seed = derive(seed, "quantile numbers")
        self._texts = torch.zeros((quantiles.settings.size, source.length), dtype=torch.long)
        self._number = -1

    def due(self, first: int) -> bool:
        """Whether the text with this number is not written yet."""
        return self._set_of(first) != self._number

    @torch.no_grad()
    def refresh(self, first: int) -> None:
        """Write the set that has this text. All ranks must call it: each writes a share."""
        self._number = self._set_of(first)
        u, texts = self._numbers(), torch.zeros_like(self._texts)
        for start in range(self._engine.rank * _TOGETHER, len(u), self._engine.ranks * _TOGETHER):
            part = slice(start, start + _TOGETHER)
            texts[part] = self._source.ended(self._quantiles.teacher.write(u[part], self._quantiles.order))
        self._texts = self._engine.sum(texts)

    def train(self, first: int, num: int) -> tuple[Example, Int64[Tensor, "num L"]]:
        """The texts number first .. first + num - 1, which belong to one set, and x_1 of each."""
        size = self._quantiles.settings.size
        places = slice(first % size, first % size + num)
        ids = self._texts[places]
        return Example(ids, torch.ones_like(ids, dtype=torch.bool)), masks_of(self._numbers()[places], self._process)

    def state(self) -> dict[str, Tensor]:
        """All that a resumed run needs."""
        return {_TEXTS: self._texts.clone(), _NUMBER: torch.tensor(self._number)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `state` gave."""
        self._texts, self._number = tensors[_TEXTS].clone(), int(tensors[_NUMBER])

    def _numbers(self) -> Float64[Tensor, "n L"]:
        """The numbers of the set in use."""
        shape = tuple(self._texts.shape)
        return Streams.spawn(self._seed, shape[0], self._number * shape[0]).uniform(shape, "cpu")

    def _set_of(self, text: int) -> int:
        return text // (self._quantiles.settings.size * self._quantiles.settings.reuse)


Pairs = QuantilePairs | WrittenPairs
"""Training texts with their noise, made ahead of the steps that use them."""


def masks_of(u: Float64[Tensor, "B L"], process: MultiMask) -> Int64[Tensor, "B L"]:
    """x_1: the masks of the buckets that the numbers lie in."""
    return process.vocab_size + buckets(u, process.num_masks)


def quantile_pairs(
    quantiles: Quantiles,
    engine: Engine,
    process: MultiMask,
    source: Source,
    seed: int,
    say: Say,
    asked: Callable[[], bool] = lambda: False,
    met: int | None = None,
) -> Pairs:
    """What the settings ask for, on the device of the run. `asked` tells whether the run is to stop.

    `met` is how many texts the run meets, None if more than there are. Prepared data of which it does not meet each
    text once are too many to be looked at before the first step: cells are then computed as they come. Several ranks
    would all compute the same blocks; they share the work of stored cells.
    """
    quantiles.teacher.to(engine.device)
    if quantiles.settings.texts == "teacher":
        return WrittenPairs(quantiles, engine, process, source, seed)
    if isinstance(source, PreparedSource) and (met is None or met > len(source.training) or engine.ranks > 1):
        cells = StoredCells(quantiles.teacher, quantiles.settings.order, quantiles.order, source, engine, say, asked)
    else:
        cells = FreshCells(quantiles, source)
    return QuantilePairs(cells, process, source, seed)
