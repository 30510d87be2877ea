"""What GenPPL must not be read without: distances from the source of Tales, variety, all of it in short, and a
warning where the judge cannot tell samples from real text.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.report.columns import (
    DISTINCT_2,
    DUPLICATES,
    GEN_PPL,
    PAIRS,
    POOLED,
    SENTENCES,
    STORIES,
    SUBJECT_PAIRS,
    SUBJECTS,
    TOKENS,
    Figure,
)
from multimdm.report.document import Cell, Part, section
from multimdm.report.formats import (
    EXACT_JUDGE,
    INTERVAL,
    UNREACHED_NOTE,
    common_entropy,
    entropy_text,
    full_text,
    perplexity_text,
    ratio_text,
)
from multimdm.report.tables import Comparison, Entry, entropy_aligned


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

        def cell(entry: Entry, kind: _Distances = kind) -> Cell:
            both = [figure.cell(entry.measurement) for figure in kind.figures]
            value = ", ".join(one.value for one in both) + entry.notes
            line = ", ".join(one.in_line for one in both) + entry.notes
            return Cell(value, ", ".join(one.below for one in both), line=line)

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
    comparison = entropy_aligned(evaluations, steps) if all(e.aligned for e in evaluations) else None
    if comparison is None:
        return []
    figures = ["GenPPL", "entropy of all samples together in nats"]
    if said := chance_text(entry.measurement for entry in comparison.entries):
        figures += ["total variation of tokens and of neighbouring pairs from the source", "valid stories"]
    real = evaluations[0].real
    if real is not None and real.gen_ppl is not None:
        known = f"{perplexity_text(real.gen_ppl.value)} and {ratio_text(real.pooled_entropy.value)}"
        said = f"Real text has {known}. {said}".rstrip()

    def cell(entry: Entry) -> str:
        there = [group for group in _IN_SHORT if not any(figure.missing(entry.measurement) for figure in group)]
        texts = [", ".join(figure.in_short(entry.measurement) for figure in group) for group in there]
        return "; ".join(texts) + entry.notes

    note = f"In this order: {'; '.join(figures)}. {said}".rstrip()
    return section("In short", note, comparison.table("In short", cell))


def variety_section(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> list[Part]:
    """How much the aligned samples differ from each other."""
    comparison = entropy_aligned(evaluations, steps) if all(e.aligned for e in evaluations) else None
    if comparison is None:
        return []
    real, first = evaluations[0].real, evaluations[0].aligned[0].measurement
    beside = "" if real is None else f" (real text: {entropy_text(real.pooled_entropy.value)})"
    figures = [f"pooled entropy in nats{beside}", "different pairs of tokens in a sample, as a share"]
    figures += ["samples that repeat another", *([] if SENTENCES.missing(first) else ["valid sentences"])]

    def cell(entry: Entry) -> str:
        m = entry.measurement
        return ", ".join(figure.in_short(m) for figure in _OF_VARIETY if not figure.missing(m))

    title = f"Variety of the {'entropy-aligned samples' if common_entropy(evaluations) else 'samples'}"
    return section(title, f"In this order: {'; '.join(figures)}.", comparison.table(title, cell))


def weak_judge_text(evaluation: Evaluation) -> str | None:
    """A judge that gives samples what it gives real text cannot tell them apart: its figures say nothing.

    What is to be said of the judge, if samples score at or below real text within the interval of real text.
    """
    real = evaluation.real
    if real is None or real.gen_ppl is None or evaluation.judge == EXACT_JUDGE:
        return None
    most = real.gen_ppl.value if real.gen_ppl.high is None else real.gen_ppl.high
    measured = [*evaluation.measurements, *(one.measurement for one in evaluation.aligned)]
    passed = [m for m in measured if m.gen_ppl is not None and m.gen_ppl.value <= most]
    if not passed:
        return None
    where = "; ".join(dict.fromkeys(_at(m) for m in passed))
    text = (
        f"The judge {evaluation.judge} cannot tell samples from real text: it gives real text a perplexity of "
        f"{full_text(real.gen_ppl, perplexity_text)}, and samples no more ({where}). GenPPL says nothing here; take a "
        "stronger judge (--judge)"
    )
    least = real.entropy.value if real.entropy.low is None else real.entropy.low
    if any(m.entropy.value < least for m in passed):
        return f"{text}, and mind the entropy: some of these samples are less varied than real text."
    return f"{text}."


def _at(m: Measurement) -> str:
    assert m.gen_ppl is not None
    return f"{perplexity_text(m.gen_ppl.value)} at K = {m.steps}, tau {m.temperature:.4g}"
