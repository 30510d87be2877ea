"""Columns: a name, where a figure is found, and how it is written. Pages, terminal, Markdown and CSV read them here.

Figures of samples (`FIGURES`) are columns of every table of measurements. A new one is a line here and a field of
`Measurement`, and how it is averaged over seeds (`evaluation/over_seeds.py`).
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.report.document import Cell
from multimdm.report.formats import (
    UNREACHED,
    entropy_text,
    full_text,
    interval_text,
    perplexity_text,
    ratio_text,
    share_text,
    value_text,
)

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table whose rows are objects."""

    title: str
    get: Callable[[Row], Any]
    text: Callable[[Any], str] = str

    def of(self, row: Row) -> str:
        """What stands in a row."""
        return self.text(self.get(row))


@dataclass(frozen=True)
class Figure:
    """A figure of samples, with its interval."""

    name: str
    """The name in CSV files, where the ends of the interval have it with _low and _high."""
    title: str
    get: Callable[[Measurement], Estimate | None]
    number: Callable[[float | int], str]
    short: Callable[[float | int], str] | None = None
    """How the number is written where there is little room; as elsewhere unless given."""
    narrow: str = ""
    """The title in the terminal; neighbours of one title share a column there."""
    brief: bool = False
    """Whether the terminal leaves out the interval, for want of room."""
    optional: bool = False
    """Whether the column is left out where no measurement has it."""
    chance: Callable[[Measurement], float | None] | None = None
    """What as many real stories have by chance."""

    def cell(self, m: Measurement) -> Cell:
        """The value and its interval."""
        estimate = self.get(m)
        return Cell(value_text(estimate, self.number), interval_text(estimate, self.number))

    def in_line(self, m: Measurement) -> str:
        """Value and interval in a line."""
        return full_text(self.get(m), self.number)

    def in_short(self, m: Measurement) -> str:
        """The value alone, in little room."""
        return value_text(self.get(m), self.short or self.number)

    def missing(self, m: Measurement) -> bool:
        """Whether nothing is to be said of it."""
        return self.optional and self.get(m) is None


GEN_PPL = Figure("gen_ppl", "GenPPL", lambda m: m.gen_ppl, perplexity_text)
ENTROPY = Figure("entropy", "entropy", lambda m: m.entropy, entropy_text)
POOLED = Figure("pooled_entropy", "pooled", lambda m: m.pooled_entropy, entropy_text, ratio_text, brief=True)

_DISTINCT = "distinct 1/2/3"
DISTINCT_1 = Figure("distinct_1", "distinct-1", lambda m: m.distinct[0], ratio_text, narrow=_DISTINCT)
DISTINCT_2 = Figure("distinct_2", "distinct-2", lambda m: m.distinct[1], ratio_text, narrow=_DISTINCT)
DISTINCT_3 = Figure("distinct_3", "distinct-3", lambda m: m.distinct[2], ratio_text, narrow=_DISTINCT)
DUPLICATES = Figure("duplicates", "duplicates", lambda m: m.duplicates, share_text)

SENTENCES = Figure(
    "valid_sentences", "valid sentences", lambda m: m.valid_sentences, share_text, narrow="sentences", optional=True
)
STORIES = Figure(
    "valid_stories", "valid stories", lambda m: m.valid_stories, share_text, narrow="stories", optional=True
)


def _distance(
    name: str,
    title: str,
    get: Callable[[Measurement], Estimate | None],
    chance: Callable[[Measurement], float | None],
) -> Figure:
    """The figure of a distance from the source of Tales."""
    return Figure(
        f"{name}_distance", title, get, entropy_text, ratio_text, "distance", brief=True, optional=True, chance=chance
    )


TOKENS = _distance("token", "token distance", lambda m: m.token_distance, lambda m: m.token_chance)
PAIRS = _distance("pair", "pair distance", lambda m: m.pair_distance, lambda m: m.pair_chance)
SUBJECTS = _distance("subject", "subject distance", lambda m: m.subject_distance, lambda m: m.subject_chance)
SUBJECT_PAIRS = _distance(
    "subject_pair", "of two subjects", lambda m: m.subject_pair_distance, lambda m: m.subject_pair_chance
)

_QUALITY = (GEN_PPL, ENTROPY, POOLED)
_VARIETY = (DISTINCT_1, DISTINCT_2, DISTINCT_3, DUPLICATES)
_ON_TALES = (SENTENCES, STORIES, TOKENS, PAIRS, SUBJECTS, SUBJECT_PAIRS)
FIGURES = (*_QUALITY, *_VARIETY, *_ON_TALES)
"""All figures, in the order of CSV files."""


def shown_figures(measurements: Iterable[Measurement]) -> list[Figure]:
    """The figures that are there, in the order of tables: what Tales tell comes before the variety of samples."""
    found = list(measurements)
    return [figure for figure in (*_QUALITY, *_ON_TALES, *_VARIETY) if not all(map(figure.missing, found))]


def all_samples(evaluation: Evaluation) -> list[tuple[Measurement, str]]:
    """Every measurement, and whether it is an aligned one; an autoregressive model has the same one for every K."""
    found = [(m, "") for m in evaluation.measurements]
    for one in evaluation.aligned:  # without a target they were drawn as the model is to be, and aligned with nothing
        kind = "" if one.target is None else "aligned" if one.reached else f"aligned {UNREACHED}"
        found.append((one.measurement, kind))
    unique = {(m.steps, m.temperature, kind): (m, kind) for m, kind in found}
    return [unique[key] for key in sorted(unique)]


_BY_CHANCE = [(figure, figure.chance) for figure in FIGURES if figure.chance is not None]
FIELDS = (
    *("steps", "nfe", "temperature", "judge"),
    *(figure.name + end for figure in FIGURES for end in ("", "_low", "_high")),
    *(figure.name.replace("distance", "chance") for figure, _ in _BY_CHANCE),
    *("num", "length", "seed"),
)
"""Columns of a measurement in CSV files: every figure with its interval, and what real stories have by chance."""


def csv_row(steps: int, m: Measurement) -> list[object]:
    """A measurement under FIELDS; what there is not is left empty."""
    values = [x for e in (figure.get(m) for figure in FIGURES) for x in ([e.value, e.low, e.high] if e else [None] * 3)]
    chances = [chance(m) for _, chance in _BY_CHANCE]
    row = [steps, m.nfe, m.temperature, m.judge, *values, *chances, m.num, m.length, m.seed]
    return ["" if x is None else x for x in row]


def csv_file(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The text of a CSV file."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return file.getvalue()
