"""The page of a specification: the paper's table or figure with our figures, and what they rest on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.plan import Evaluation
from multimdm.report.against_steps_figure import against_steps_figure
from multimdm.report.distances import distances_text
from multimdm.report.evaluation_report import evaluation_sections
from multimdm.report.formats import (
    INTERVAL,
    NOTHING,
    UNREACHED,
    by_steps,
    common_entropy,
    full_text,
    perplexity_text,
    ratio_digits,
)
from multimdm.report.markdown import markdown_table
from multimdm.report.mask_readings import mask_reading_markdown
from multimdm.report.page import Markup, heading, page, paragraph, pictures, table
from multimdm.report.pareto_figure import png_data
from multimdm.report.recalls import recall_table
from multimdm.report.short_table import short_text
from multimdm.report.tables import aligned_tables, markdown
from multimdm.report.variety import nelbo_text, samples_text, variety_text


@dataclass(frozen=True)
class Trained:
    """How a model came to be."""

    label: str
    stages: str
    """What was done one after the other."""
    training: int
    """Sequences."""
    distillation: int
    """Sequences."""
    minutes: float
    """Of all seeds and stages, as far as they are known; shared stages count for every model that starts from them."""
    recipes: str = ""
    """Fingerprint of the settings that shape the model, but for its seed."""


@dataclass(frozen=True)
class Reproduction:
    """All that the page tells."""

    title: str
    shows: str
    """Of the paper."""
    scale: str
    about: str
    equal: str
    """Which budgets are equal, in words."""
    seeds: int
    judge: str
    evaluations: Sequence[Evaluation]
    reference: str
    """Label of the model that others are compared with seed by seed."""
    ratios: Mapping[str, Sequence[Estimate | None]]
    """Label -> GenPPL of aligned samples as a multiple of the reference's, at each K; empty for one seed."""
    steps: Sequence[int]
    trained: Sequence[Trained]
    published: Mapping[str, Mapping[str, Sequence[float]]]
    """Table -> label -> what the paper printed at each K."""
    absent: Mapping[str, str]
    """Label of a model that is left out -> why."""
    seed_numbers: Sequence[int] = ()
    """The training seeds."""
    each: Mapping[str, Sequence[Evaluation]] = field(default_factory=dict)
    """Label -> what was measured with each of the seeds, so that studies of other seeds can be merged with this one."""


_RATIOS = (
    "By pairs of models of the same seed: geometric mean, with Student's "
    f"{INTERVAL} over seeds. Below 1 is better, also where the intervals of single models overlap."
)
_RATIOS_ALIGNED = (
    f"Of the entropy-aligned samples. {_RATIOS} {UNREACHED} One of the two is not at the entropy asked for."
)


def quality_figure(result: Reproduction) -> Figure:
    """GenPPL against K at matched entropy."""
    real = result.evaluations[0].real
    reference = {"real text": real.gen_ppl.value} if real is not None and real.gen_ppl is not None else None
    return against_steps_figure(
        result.evaluations,
        lambda m: m.gen_ppl,
        f"GenPPL by {result.judge}",
        result.title,
        log=True,
        reference=reference,
    )


def validity_figure(result: Reproduction) -> Figure | None:
    """The share of valid stories against K, where stories can be valid."""
    if all(one.measurement.valid_stories is None for e in result.evaluations for one in e.aligned):
        return None
    return against_steps_figure(
        result.evaluations, lambda m: m.valid_stories, "share of valid stories", f"{result.title}: validity"
    )


def reproduction_report(result: Reproduction) -> str:
    """The page."""
    seeds = f"{result.seeds} training seed{'s' * (result.seeds > 1)}"
    subtitle = f"{result.shows}, at the scale {result.scale}: {result.about} {seeds}; judge: {result.judge}"
    return page(result.title, subtitle, _sections(result))


def tables_text(result: Reproduction) -> str:
    """The tables as Markdown, with budgets, what they must not be read without and, where they are, the published
    figures."""
    parts = [f"## {result.title}", "", f"{result.shows}; scale {result.scale}; {result.equal}", ""]
    parts += markdown_table(["model", "stages", "sequences", "distilled on", "minutes"], _budget_rows(result))
    parts += [f"\n{_absence(label, why)}" for label, why in result.absent.items()]
    if short := short_text(result.evaluations, result.steps):
        parts += ["", short.rstrip()]
    if result.ratios:
        header = by_steps(result.steps)
        parts += [
            "",
            f"### {_ratios_title(result)}",
            "",
            _ratios_note(result),
            "",
            *markdown_table(header, _ratio_rows(result)),
        ]
    for comparison in aligned_tables(result.evaluations, result.steps):
        parts += ["", markdown(comparison, result.judge).rstrip()]
        if rows := result.published.get(comparison.name):
            parts += ["", "In the paper:", "", *markdown_table(by_steps(result.steps), _published_rows(rows))]
        if distances := distances_text(comparison):
            parts += ["", distances.rstrip()]
    beside = (
        variety_text(result.evaluations, result.steps),
        nelbo_text(result.evaluations),
        mask_reading_markdown(result.evaluations),
        recall_table(result.evaluations),
        samples_text(result.evaluations, result.steps),
    )
    parts += [f"\n{text.rstrip()}" for text in beside if text]
    return "\n".join(parts) + "\n"


def _sections(result: Reproduction) -> Iterator[Markup]:
    drawn = [(quality_figure(result), "GenPPL against K for every model; the tables have the numbers")]
    if (validity := validity_figure(result)) is not None:
        drawn.append((validity, "Share of valid stories against K for every model; the tables have the numbers"))
    yield pictures((png_data(figure), alt) for figure, alt in drawn)
    yield heading("Budgets")
    yield paragraph(result.equal)
    header = ["model", "stages", "sequences of training", "of distillation", "minutes"]
    yield table("Budgets", header, _budget_rows(result), "words")
    for label, why in result.absent.items():
        yield paragraph(_absence(label, why))
    if result.ratios:
        yield heading(_ratios_title(result))
        yield paragraph(_ratios_note(result))
        yield table("Ratios", by_steps(result.steps), _ratio_rows(result))
    for name, rows in result.published.items():
        yield heading(f"In the paper: {name}")
        yield paragraph("Another corpus, judge, network and budget than any smaller scale has: only orders compare.")
        yield table(name, by_steps(result.steps), _published_rows(rows))
    yield from evaluation_sections(result.evaluations, result.steps)


def _budget_rows(result: Reproduction) -> list[list[str]]:
    return [
        [
            one.label,
            one.stages,
            f"{one.training:,}",
            f"{one.distillation:,}" if one.distillation else NOTHING,
            f"{one.minutes:.1f}",
        ]
        for one in result.trained
    ]


def _ratios_title(result: Reproduction) -> str:
    return f"GenPPL by {result.judge} as a multiple of that of {result.reference}"


def _ratios_note(result: Reproduction) -> str:
    return _RATIOS_ALIGNED if common_entropy(result.evaluations) else _RATIOS


def _ratio_rows(result: Reproduction) -> list[list[str]]:
    reached = {e.label: [one.reached for one in e.aligned] for e in result.evaluations}
    reference, rows = reached[result.reference], []
    for label, ratios in result.ratios.items():
        marks = ["" if ours and theirs else UNREACHED for ours, theirs in zip(reached[label], reference, strict=True)]
        texts = (full_text(one, ratio_digits) + mark for one, mark in zip(ratios, marks, strict=True))
        rows.append([label, *texts])
    return rows


def _published_rows(rows: Mapping[str, Sequence[float]]) -> list[list[str]]:
    return [[label, *(perplexity_text(value) for value in values)] for label, values in rows.items()]


def _absence(label: str, why: str) -> str:
    return f"{label} is left out: {why}"
