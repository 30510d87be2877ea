"""The two halves of Tab. (text-gen-pretrain): models by K, at equal entropy and at equal temperature."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.report.formats import (
    BEST_NOTE,
    INTERVAL,
    NOTHING,
    UNRANKED_NOTE,
    UNREACHED,
    UNREACHED_NOTE,
    by_steps,
    calls_text,
    common_entropy,
    entropy_text,
    interval_text,
    perplexity_text,
    value_text,
)
from multimdm.report.markdown import markdown_table


@dataclass(frozen=True)
class Cell:
    """What one model does at one K."""

    measurement: Measurement
    reached: bool = True
    """Whether its entropy is the one that was asked for."""

    def comparable(self, steps: int) -> bool:
        """Whether it may be ranked at K."""
        return self.reached and self.measurement.nfe <= steps


@dataclass(frozen=True)
class Table:
    """GenPPL of several models, with what it must not be read without."""

    name: str
    """entropy-aligned, temperature-aligned or as-drawn."""
    caption: str
    steps: tuple[int, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]
    """Label, and one cell for each K."""

    def best(self, column: int) -> frozenset[str]:
        """Labels of the lowest GenPPL and of all that cannot be told from it: their intervals overlap.

        Nothing if that is all of them. Only what took K calls at most and has the entropy asked for is compared.
        """
        found: dict[str, Estimate] = {}
        for label, cells in self.rows:
            cell = cells[column]
            if cell is not None and cell.comparable(self.steps[column]) and cell.measurement.gen_ppl is not None:
                found[label] = cell.measurement.gen_ppl
        if not found:
            return frozenset()
        lowest = min(found.values(), key=lambda estimate: estimate.value)
        alike = frozenset(label for label, estimate in found.items() if estimate.overlaps(lowest))
        return alike if len(alike) < len(found) else frozenset()

    @property
    def unranked(self) -> bool:
        """Whether some cell took more network calls than K."""
        return any(
            cell is not None and cell.measurement.nfe > K
            for _, cells in self.rows
            for K, cell in zip(self.steps, cells, strict=True)
        )

    @property
    def marked(self) -> bool:
        """Whether some cell is at another entropy than the one asked for."""
        return any(cell is not None and not cell.reached for _, cells in self.rows for cell in cells)


def entropy_aligned(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> Table | None:
    """Every model at the temperature that gives the asked-for entropy, or as it is to be drawn; None if neither."""
    if not any(evaluation.aligned for evaluation in evaluations):
        return None
    targets = sorted({entropy_text(a.target) for e in evaluations for a in e.aligned if a.target is not None})
    rows = []
    for evaluation in evaluations:
        cells = [Cell(one.measurement, one.reached) for one in evaluation.aligned]
        rows.append((evaluation.label, tuple(cells) or (None,) * len(steps)))
    if not common_entropy(evaluations):
        caption = f"Each as its label or its checkpoint says. Intervals are {evaluations[0].spread}."
        return Table("as-drawn", caption, tuple(steps), tuple(rows))
    caption = (
        f"Sample entropy matched to H = {', '.join(targets)} nats by the temperature tau. Intervals are "
        f"{evaluations[0].spread}."
    )
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
    caption = f"All at temperature tau = 1. Intervals are {evaluations[0].spread}."
    return Table("temperature-aligned", caption, tuple(steps), tuple(rows))


def aligned_tables(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> list[Table]:
    """Both, as far as they were measured."""
    both = [entropy_aligned(evaluations, steps), temperature_aligned(evaluations, steps)]
    if both[0] is not None and both[0].name == "as-drawn":  # has those at temperature 1 already
        both = both[:1]
    return [table for table in both if table is not None]


def markdown(table: Table, judge: str | None) -> str:
    """With a caption that says how to read it."""
    lines = [
        f"### {table.name.capitalize()}",
        "",
        f"{table.caption} GenPPL by judge `{judge}` [{INTERVAL}], entropy in nats, temperature. {BEST_NOTE}",
        "",
    ]
    best = [table.best(column) for column in range(len(table.steps))]
    rows = []
    for label, cells in table.rows:
        columns = enumerate(zip(table.steps, cells, strict=True))
        rows.append([label, *(_markdown_cell(cell, K, label in best[column]) for column, (K, cell) in columns)])
    lines += markdown_table(by_steps(table.steps), rows)
    if table.marked:
        lines += ["", UNREACHED_NOTE]
    if table.unranked:
        lines += ["", UNRANKED_NOTE]
    return "\n".join(lines) + "\n"


def _markdown_cell(cell: Cell | None, K: int, best: bool) -> str:
    if cell is None:
        return NOTHING
    m = cell.measurement
    value = value_text(m.gen_ppl, perplexity_text)
    value = f"**{value}**" if best else value
    mark = "" if cell.reached else UNREACHED
    interval = interval_text(m.gen_ppl, perplexity_text)
    parts = [f"{value}{mark}", calls_text(m.nfe, K), interval]
    return f"{' '.join(part for part in parts if part)}, H = {entropy_text(m.entropy.value)}, τ = {m.temperature:.4g}"


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


_FIGURES = (
    *("gen_ppl", "entropy", "pooled_entropy", "distinct_1", "distinct_2", "distinct_3", "duplicates"),
    *("valid_sentences", "valid_stories", "token_distance", "pair_distance"),
    *("subject_distance", "subject_pair_distance"),
)
FIELDS = (
    *("steps", "nfe", "temperature", "judge"),
    *(name + end for name in _FIGURES for end in ("", "_low", "_high")),
    *("token_chance", "pair_chance", "subject_chance", "subject_pair_chance", "num", "length", "seed"),
)
"""Columns of a measurement: every figure with its interval, and what real stories have by chance."""


def csv_row(steps: int, m: Measurement) -> list[object]:
    """A measurement under FIELDS; what there is not is left empty."""
    on_tales = (m.valid_sentences, m.valid_stories, m.token_distance, m.pair_distance)
    on_tales += (m.subject_distance, m.subject_pair_distance)
    figures = (m.gen_ppl, m.entropy, m.pooled_entropy, *m.distinct, m.duplicates, *on_tales)
    values = [x for e in figures for x in ([e.value, e.low, e.high] if e is not None else [None] * 3)]
    chances = (m.token_chance, m.pair_chance, m.subject_chance, m.subject_pair_chance)
    row = [steps, m.nfe, m.temperature, m.judge, *values, *chances, m.num, m.length, m.seed]
    return ["" if x is None else x for x in row]
