"""The two halves of Tab. (text-gen-pretrain): models by K, at equal entropy and at equal temperature."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.report.columns import (
    FIELDS,
    csv_file,
    csv_row,
)
from multimdm.report.document import Cell, Part, Table, section
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


@dataclass(frozen=True)
class Entry:
    """What one model does at one K."""

    steps: int
    """K, as asked for."""
    measurement: Measurement
    reached: bool = True
    """Whether its entropy is the one that was asked for."""

    @property
    def mark(self) -> str:
        """Beside what was measured at another entropy."""
        return "" if self.reached else UNREACHED

    @property
    def calls(self) -> str:
        """Beside what took another number of network calls than K."""
        return calls_text(self.measurement.nfe, self.steps)

    @property
    def notes(self) -> str:
        """Both, to be put after figures."""
        return f"{self.mark} {self.calls}".rstrip()


@dataclass(frozen=True)
class Comparison:
    """GenPPL of several models, with what it must not be read without."""

    name: str
    """entropy-aligned, temperature-aligned or as-drawn."""
    caption: str
    steps: tuple[int, ...]
    rows: tuple[tuple[str, tuple[Entry | None, ...]], ...]
    """Label, and one cell for each K."""

    def best(self, column: int) -> frozenset[str]:
        """Labels of the lowest GenPPL and of all that cannot be told from it: their intervals overlap.

        Nothing if that is all of them. Only what took K calls at most and has the entropy asked for is compared.
        """
        entries = {label: entries[column] for label, entries in self.rows}
        found = {
            label: entry.measurement.gen_ppl
            for label, entry in entries.items()
            if entry is not None
            and entry.reached
            and entry.measurement.nfe <= entry.steps
            and entry.measurement.gen_ppl is not None
        }
        if not found:
            return frozenset()
        lowest = min(found.values(), key=lambda estimate: estimate.value)
        alike = frozenset(label for label, estimate in found.items() if estimate.overlaps(lowest))
        return alike if len(alike) < len(found) else frozenset()

    @property
    def unranked(self) -> bool:
        """Whether something took more network calls than K."""
        return any(entry.measurement.nfe > entry.steps for entry in self.entries)

    @property
    def marked(self) -> bool:
        """Whether something is at another entropy than the one asked for."""
        return any(not entry.reached for entry in self.entries)

    @property
    def entries(self) -> list[Entry]:
        """All entries of the table."""
        return [entry for _, entries in self.rows for entry in entries if entry is not None]

    def table(self, name: str, cell: Callable[[Entry], str | Cell]) -> Table:
        """The table: models by K."""
        rows = [
            [label, *(NOTHING if entry is None else cell(entry) for entry in entries)] for label, entries in self.rows
        ]
        return Table(name, by_steps(self.steps), rows)


def entropy_aligned(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> Comparison | None:
    """Every model at the temperature that gives the asked-for entropy, or as it is to be drawn; None if neither."""
    if not any(evaluation.aligned for evaluation in evaluations):
        return None
    targets = sorted({entropy_text(a.target) for e in evaluations for a in e.aligned if a.target is not None})
    rows = [(e.label, _entries(steps, [(one.measurement, one.reached) for one in e.aligned])) for e in evaluations]
    if not common_entropy(evaluations):
        caption = f"Each as its label or its checkpoint says. Intervals are {evaluations[0].spread}."
        return Comparison("as-drawn", caption, tuple(steps), tuple(rows))
    caption = (
        f"Sample entropy matched to H = {', '.join(targets)} nats by the temperature tau. Intervals are "
        f"{evaluations[0].spread}."
    )
    return Comparison("entropy-aligned", caption, tuple(steps), tuple(rows))


def temperature_aligned(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> Comparison | None:
    """Every model at tau = 1; None if it was not measured."""
    # Measurements come K by K, so those at one temperature are in the order of K.
    rows = [(e.label, _entries(steps, [(m, True) for m in e.measurements if m.temperature == 1])) for e in evaluations]
    if all(entry is None for _, entries in rows for entry in entries):
        return None
    caption = f"All at temperature tau = 1. Intervals are {evaluations[0].spread}."
    return Comparison("temperature-aligned", caption, tuple(steps), tuple(rows))


def _entries(steps: Sequence[int], found: Sequence[tuple[Measurement, bool]]) -> tuple[Entry | None, ...]:
    """One for each K; nothing for a model that was not measured in this way."""
    if not found:
        return (None,) * len(steps)
    return tuple(Entry(K, m, reached) for K, (m, reached) in zip(steps, found, strict=True))


def aligned_tables(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> list[Comparison]:
    """Both, as far as they were measured."""
    both = [entropy_aligned(evaluations, steps), temperature_aligned(evaluations, steps)]
    if both[0] is not None and both[0].name == "as-drawn":  # has those at temperature 1 already
        both = both[:1]
    return [table for table in both if table is not None]


WITH_INTERVAL = f"GenPPL with its {INTERVAL}, then entropy and temperature."
"""What a page says of the figures in a cell."""


def by_judge(judge: str | None) -> str:
    """What Markdown says of the figures in a cell, where nothing around it names the judge."""
    return f"GenPPL by judge `{judge}` [{INTERVAL}], entropy in nats, temperature."


def comparison_section(comparison: Comparison, figures: str = WITH_INTERVAL) -> list[Part]:
    """GenPPL with its interval, entropy and temperature."""
    best = {
        entries[column]
        for column in range(len(comparison.steps))
        for label, entries in comparison.rows
        if label in comparison.best(column)
    }

    def cell(entry: Entry) -> Cell:
        m, strong = entry.measurement, entry in best
        value, interval = value_text(m.gen_ppl, perplexity_text), interval_text(m.gen_ppl, perplexity_text)
        entropy, tau = entropy_text(m.entropy.value), f"{m.temperature:.4g}"
        marked = f"**{value}**{entry.mark}" if strong else f"{value}{entry.mark}"
        return Cell(
            _joined(" ", value, entry.mark, entry.calls),
            _joined(" · ", interval, f"H {entropy}", f"τ {tau}"),
            strong,
            f"{_joined(' ', marked, entry.calls, interval)}, H = {entropy}, τ = {tau}",
        )

    name = comparison.name.capitalize()
    notes = [*([UNREACHED_NOTE] if comparison.marked else []), *([UNRANKED_NOTE] if comparison.unranked else [])]
    return section(name, f"{comparison.caption} {figures} {BEST_NOTE}", comparison.table(name, cell), notes, level=2)


def _joined(between: str, *texts: str) -> str:
    """The texts that are not empty, joined."""
    return between.join(text for text in texts if text)


def csv_text(comparison: Comparison) -> str:
    """One row per model and K."""
    rows = [
        [label, entry.reached, *csv_row(entry.steps, entry.measurement)]
        for label, entries in comparison.rows
        for entry in entries
        if entry is not None
    ]
    return csv_file(["model", "reached", *FIELDS], rows)
