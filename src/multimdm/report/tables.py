"""Models by K, at equal entropy and at equal temperature (Tab. text-gen-pretrain), with the tables beside them.

They are parts of a report: pages and Markdown show the same.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.report.columns import (
    DISTINCT_2,
    DUPLICATES,
    FIELDS,
    GEN_PPL,
    PAIRS,
    POOLED,
    SENTENCES,
    STORIES,
    SUBJECT_PAIRS,
    SUBJECTS,
    TOKENS,
    Figure,
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
    ratio_text,
    value_text,
)


@dataclass(frozen=True)
class Entry:
    """What one model does at one K."""

    measurement: Measurement
    reached: bool = True
    """Whether its entropy is the one that was asked for."""

    def comparable(self, steps: int) -> bool:
        """Whether it may be ranked at K."""
        return self.reached and self.measurement.nfe <= steps


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
        return any(not entry.reached for entry in self.entries)

    @property
    def entries(self) -> list[Entry]:
        """All that there are."""
        return [entry for _, entries in self.rows for entry in entries if entry is not None]

    def table(self, name: str, cell: Callable[[str, int, Entry], str | Cell]) -> Table:
        """Models by K; `cell` is given the label, the number of the column and what is there."""
        rows = [
            [label, *(NOTHING if e is None else cell(label, column, e) for column, e in enumerate(entries))]
            for label, entries in self.rows
        ]
        return Table(name, by_steps(self.steps), rows)

    def notes(self, column: int, entry: Entry) -> str:
        """What keeps an entry from being compared with the others; begins with a space if it is about calls."""
        calls = calls_text(entry.measurement.nfe, self.steps[column])
        return f"{'' if entry.reached else UNREACHED} {calls}".rstrip()


def entropy_aligned(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> Comparison | None:
    """Every model at the temperature that gives the asked-for entropy, or as it is to be drawn; None if neither."""
    if not any(evaluation.aligned for evaluation in evaluations):
        return None
    targets = sorted({entropy_text(a.target) for e in evaluations for a in e.aligned if a.target is not None})
    rows = []
    for evaluation in evaluations:
        cells = [Entry(one.measurement, one.reached) for one in evaluation.aligned]
        rows.append((evaluation.label, tuple(cells) or (None,) * len(steps)))
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
    rows = []
    for evaluation in evaluations:
        # Measurements come K by K, so those at one temperature are in the order of K.
        at_one = [Entry(m) for m in evaluation.measurements if m.temperature == 1]
        rows.append((evaluation.label, tuple(at_one) or (None,) * len(steps)))
    if all(cell is None for _, cells in rows for cell in cells):
        return None
    caption = f"All at temperature tau = 1. Intervals are {evaluations[0].spread}."
    return Comparison("temperature-aligned", caption, tuple(steps), tuple(rows))


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
    best = [comparison.best(column) for column in range(len(comparison.steps))]

    def cell(label: str, column: int, entry: Entry) -> Cell:
        m = entry.measurement
        value, interval = value_text(m.gen_ppl, perplexity_text), interval_text(m.gen_ppl, perplexity_text)
        entropy, calls = entropy_text(m.entropy.value), calls_text(m.nfe, comparison.steps[column])
        strong, mark = label in best[column], "" if entry.reached else UNREACHED
        first = [f"**{value}**{mark}" if strong else f"{value}{mark}", calls, interval]
        return Cell(
            " ".join(text for text in (value, mark, calls) if text),
            " · ".join(text for text in (interval, f"H {entropy}", f"τ {m.temperature:.4g}") if text),
            strong,
            f"{' '.join(text for text in first if text)}, H = {entropy}, τ = {m.temperature:.4g}",
        )

    name = comparison.name.capitalize()
    notes = [*([UNREACHED_NOTE] if comparison.marked else []), *([UNRANKED_NOTE] if comparison.unranked else [])]
    return section(name, f"{comparison.caption} {figures} {BEST_NOTE}", comparison.table(name, cell), notes, level=2)


@dataclass(frozen=True)
class _Distances:
    """Two distances from the source of Tales that stand together."""

    title: str
    note: str
    figures: tuple[Figure, Figure]
    names: tuple[str, str]


_DISTANCES = (
    _Distances(
        "Distance from the source",
        "Total variation between samples and the source, from 0 for equal laws to 1: of tokens, averaged over "
        "positions, and of pairs of neighbouring tokens. A perplexity that was bought with a wrong law shows here.",
        (TOKENS, PAIRS),
        ("tokens", "pairs"),
    ),
    _Distances(
        "Distance of what stories are about",
        "Total variation between what samples and stories of the source are about, whose law is known exactly: name, "
        "place, thing and event, averaged one by one and two by two. Good sentences about always the same show here.",
        (SUBJECTS, SUBJECT_PAIRS),
        ("one by one", "two by two"),
    ),
)


def distance_sections(comparison: Comparison) -> Iterator[Part]:
    """How far the samples of a comparison are from the source; nothing for other data than Tales."""
    for kind in _DISTANCES:
        chance = _chance_text(kind, (entry.measurement for entry in comparison.entries))
        if not chance:
            continue

        def cell(label: str, column: int, entry: Entry, kind: _Distances = kind) -> Cell:
            both = [figure.cell(entry.measurement) for figure in kind.figures]
            notes = comparison.notes(column, entry)
            return Cell(
                ", ".join(one.value for one in both) + notes,
                ", ".join(one.below for one in both),
                line=", ".join(one.in_line for one in both) + notes,
            )

        name = f"{kind.title}, {comparison.name}"
        note = f"{kind.note} {chance} In this order, each with its {INTERVAL}."
        notes = [UNREACHED_NOTE] if comparison.marked else []
        yield from section(name, note, comparison.table(name, cell), notes)


def chance_text(measurements: Iterable[Measurement]) -> str:
    """What as many real stories have of all distances; empty for other data."""
    found = list(measurements)
    return " ".join(text for kind in _DISTANCES if (text := _chance_text(kind, found)))


def _chance_text(kind: _Distances, measurements: Iterable[Measurement]) -> str:
    (one, two), (first, second) = kind.names, (figure.chance for figure in kind.figures)
    assert first is not None
    assert second is not None
    levels = {(m.num, first(m), second(m)) for m in measurements}
    return " ".join(
        f"{num:,} real stories are {entropy_text(x)} ({one}) and {entropy_text(y)} ({two}) from it by chance alone."
        for num, x, y in sorted(levels, key=str)
        if x is not None and y is not None
    )


_IN_SHORT = ((GEN_PPL,), (POOLED,), (TOKENS, PAIRS), (STORIES,))
_OF_VARIETY = (POOLED, DISTINCT_2, DUPLICATES, SENTENCES)


def short_section(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> list[Part]:
    """The one table to read if only one is read: GenPPL with the figures that belong to it, at each K."""
    comparison = entropy_aligned(evaluations, steps)
    if comparison is None or not all(evaluation.aligned for evaluation in evaluations):
        return []
    told = ["GenPPL", "entropy of all samples together in nats"]
    if said := chance_text(entry.measurement for entry in comparison.entries):
        told += ["total variation of tokens and of neighbouring pairs from the source", "valid stories"]
    real = evaluations[0].real
    if real is not None and real.gen_ppl is not None:
        known = f"{perplexity_text(real.gen_ppl.value)} and {ratio_text(real.pooled_entropy.value)}"
        said = f"Real text has {known}. {said}".rstrip()

    def cell(label: str, column: int, entry: Entry) -> str:
        there = [group for group in _IN_SHORT if not any(figure.missing(entry.measurement) for figure in group)]
        texts = [", ".join(figure.in_short(entry.measurement) for figure in group) for group in there]
        return "; ".join(texts) + comparison.notes(column, entry)

    note = f"In this order: {'; '.join(told)}. {said}".rstrip()
    return section("In short", note, comparison.table("In short", cell))


def variety_section(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> list[Part]:
    """How much the aligned samples differ from each other."""
    comparison = entropy_aligned(evaluations, steps)
    if comparison is None or not all(evaluation.aligned for evaluation in evaluations):
        return []
    real, first = evaluations[0].real, evaluations[0].aligned[0].measurement
    beside = "" if real is None else f" (real text: {entropy_text(real.pooled_entropy.value)})"
    told = [f"pooled entropy in nats{beside}", "different pairs of tokens in a sample, as a share"]
    told += ["samples that repeat another", *([] if SENTENCES.missing(first) else ["valid sentences"])]

    def cell(label: str, column: int, entry: Entry) -> str:
        m = entry.measurement
        return ", ".join(figure.in_short(m) for figure in _OF_VARIETY if not figure.missing(m))

    title = f"Variety of the {'entropy-aligned samples' if common_entropy(evaluations) else 'samples'}"
    return section(title, f"In this order: {'; '.join(told)}.", comparison.table(title, cell))


def csv_text(comparison: Comparison) -> str:
    """One row per model and K."""
    rows = [
        [label, entry.reached, *csv_row(K, entry.measurement)]
        for label, entries in comparison.rows
        for K, entry in zip(comparison.steps, entries, strict=True)
        if entry is not None
    ]
    return csv_file(["model", "reached", *FIELDS], rows)
