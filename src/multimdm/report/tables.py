"""The two halves of Tab. (text-gen-pretrain): models by K, at equal entropy and at equal temperature."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.report.formats import (
    INTERVAL,
    NOTHING,
    UNREACHED,
    UNREACHED_NOTE,
    entropy_text,
    interval_text,
    perplexity_text,
    value_text,
)


@dataclass(frozen=True)
class Cell:
    """What one model does at one K."""

    measurement: Measurement
    reached: bool = True
    """Whether its entropy is the one that was asked for."""


@dataclass(frozen=True)
class Table:
    """GenPPL of several models, with what it must not be read without."""

    name: str
    """entropy-aligned or temperature-aligned."""
    caption: str
    steps: tuple[int, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]
    """Label, and one cell for each K."""

    def best(self, column: int) -> str | None:
        """The label of the lowest GenPPL among those that are comparable; None if there is nothing to compare."""
        values: dict[str, float] = {}
        for label, cells in self.rows:
            cell = cells[column]
            if cell is not None and cell.reached and cell.measurement.gen_ppl is not None:
                values[label] = cell.measurement.gen_ppl.value
        return min(values, key=lambda label: values[label]) if len(values) > 1 else None

    @property
    def marked(self) -> bool:
        """Whether some cell is at another entropy than the one asked for."""
        return any(cell is not None and not cell.reached for _, cells in self.rows for cell in cells)


def entropy_aligned(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> Table | None:
    """Every model at the temperature that gives the asked-for entropy; None if none was asked for."""
    if not any(evaluation.aligned for evaluation in evaluations):
        return None
    targets = sorted({entropy_text(one.target) for evaluation in evaluations for one in evaluation.aligned})
    rows = []
    for evaluation in evaluations:
        cells = [Cell(one.measurement, one.reached) for one in evaluation.aligned]
        rows.append((evaluation.label, tuple(cells) or (None,) * len(steps)))
    caption = f"Sample entropy matched to H = {', '.join(targets)} nats by the temperature tau."
    return Table("entropy-aligned", caption, tuple(steps), tuple(rows))


def temperature_aligned(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> Table | None:
    """Every model at tau = 1; None if it was not measured."""
    rows = []
    for evaluation in evaluations:
        # Measurements come K by K, so those at one temperature are in the order of K.
        at_one = [Cell(m) for m in evaluation.measurements if m.temperature == 1]
        rows.append((evaluation.label, tuple(at_one) or (None,) * len(steps)))
    if all(cell is None for _, cells in rows for cell in cells):
        return None
    return Table("temperature-aligned", "All at temperature tau = 1.", tuple(steps), tuple(rows))


def markdown(table: Table, judge: str | None) -> str:
    """With a caption that says how to read it."""
    lines = [
        f"### {table.name.capitalize()}",
        "",
        f"{table.caption} GenPPL by judge `{judge}` [{INTERVAL}], entropy in nats, temperature.",
        "",
        "| model | " + " | ".join(f"K = {K}" for K in table.steps) + " |",
        "|---|" + "---|" * len(table.steps),
    ]
    best = [table.best(column) for column in range(len(table.steps))]
    for label, cells in table.rows:
        texts = [_markdown_cell(cell, label == best[column]) for column, cell in enumerate(cells)]
        lines.append(f"| {label.replace('|', chr(92) + '|')} | " + " | ".join(texts) + " |")
    if table.marked:
        lines += ["", UNREACHED_NOTE]
    return "\n".join(lines) + "\n"


def _markdown_cell(cell: Cell | None, best: bool) -> str:
    if cell is None:
        return NOTHING
    m = cell.measurement
    value = value_text(m.gen_ppl, perplexity_text)
    value = f"**{value}**" if best else value
    mark = "" if cell.reached else UNREACHED
    interval = interval_text(m.gen_ppl, perplexity_text)
    return f"{value}{mark} {interval}, H = {entropy_text(m.entropy.value)}, τ = {m.temperature:.4g}"


def csv_text(table: Table) -> str:
    """One row per model and K."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["model", "reached", *FIELDS])
    for label, cells in table.rows:
        for K, cell in zip(table.steps, cells, strict=True):
            if cell is not None:
                writer.writerow([label, cell.reached, *csv_row(K, cell.measurement)])
    return file.getvalue()


FIELDS = (
    *("steps", "nfe", "temperature", "judge", "gen_ppl", "gen_ppl_low", "gen_ppl_high"),
    *("entropy", "entropy_low", "entropy_high", "distinct_1", "distinct_2", "distinct_3", "duplicates"),
    *("valid_sentences", "valid_stories", "num", "length", "seed"),
)
"""Columns of a measurement."""


def csv_row(steps: int, m: Measurement) -> list[object]:
    """A measurement under FIELDS; what there is not is left empty."""
    estimates = [m.gen_ppl, m.entropy]
    with_intervals = [x for e in estimates for x in ([e.value, e.low, e.high] if e is not None else [None] * 3)]
    plain = [*m.distinct, m.duplicates, m.valid_sentences, m.valid_stories]
    values = [e.value if e is not None else None for e in plain]
    row = [steps, m.nfe, m.temperature, m.judge, *with_intervals, *values, m.num, m.length, m.seed]
    return ["" if x is None else x for x in row]
