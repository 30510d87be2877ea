"""What a comparison found: its report, its tables, and a file from which the tables can be made again."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from matplotlib.figure import Figure
from pydantic import TypeAdapter, ValidationError

from multimdm._complaints import explain
from multimdm._files import read_json, write_text
from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.plan import Evaluation
from multimdm.report.against_steps_figure import against_steps_figure
from multimdm.report.beside_gen_ppl import distance_sections, short_section, variety_section
from multimdm.report.document import Heading, Items, Paragraph, Part, Pictures, Table, section
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
from multimdm.report.listings import (
    LIKELIHOOD_RATIOS,
    LIKELIHOODS,
    MASKS,
    MAUVES,
    SHORTFALLS,
    listing_sections,
    recall_by_temperature,
)
from multimdm.report.markdown import inline, markdown_text
from multimdm.report.nelbos import nelbo_section
from multimdm.report.page import page
from multimdm.report.pareto_figure import png_data
from multimdm.report.tables import aligned_tables, by_judge, comparison_section

STUDY = "study.json"
TABLES = "tables.md"


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
    """What all seeds and stages took, as far as it is known; shared stages count for every model that starts there."""
    recipes: str = ""
    """Fingerprint of the settings that shape the model, but for its seed."""


@dataclass(frozen=True)
class Reproduction:
    """All that the page tells."""

    title: str
    shows: str
    """What of the paper it shows."""
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
    beside: Mapping[str, str] = field(default_factory=dict)
    """Label -> the model that this one is compared with, where it is not the reference."""

    def other(self, label: str) -> str:
        """The model that this one is compared with; of the reference itself, unless `beside` has it."""
        return self.beside.get(label, self.reference)


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
    """The page of a reproduction."""
    seeds = f"{result.seeds} training seed{'s' * (result.seeds > 1)}"
    subtitle = f"{result.shows}, at the scale {result.scale}: {result.about} {seeds}; judge: {result.judge}"
    return page(result.title, subtitle, _sections(result))


def _tables(result: Reproduction) -> Iterator[Part]:
    evaluations, steps = result.evaluations, result.steps
    yield Heading(result.title, 1)
    yield Paragraph(f"{result.shows}; scale {result.scale}; {result.equal}")
    yield from _budgets(result)
    yield from short_section(evaluations, steps)
    yield from _ratios(result)
    for comparison in aligned_tables(evaluations, steps):
        yield from comparison_section(comparison, by_judge(result.judge))
        if comparison.name in result.published:
            yield Paragraph("In the paper:")
            yield _published(result, comparison.name)
        yield from distance_sections(comparison)
    yield from variety_section(evaluations, steps)
    yield from nelbo_section(evaluations)
    yield from listing_sections(evaluations, (LIKELIHOODS, LIKELIHOOD_RATIOS, MAUVES, MASKS))
    yield from recall_by_temperature(evaluations)
    yield from listing_sections(evaluations, (SHORTFALLS,))
    yield from _samples(result)


def _sections(result: Reproduction) -> Iterator[Part]:
    drawn = [(quality_figure(result), "GenPPL against K for every model; the tables have the numbers")]
    if (validity := validity_figure(result)) is not None:
        drawn.append((validity, "Share of valid stories against K for every model; the tables have the numbers"))
    yield Pictures([(png_data(figure), shows) for figure, shows in drawn])
    yield Heading("Budgets")
    yield Paragraph(result.equal)
    yield from _budgets(result)
    yield from _ratios(result)
    for name in result.published:
        yield Heading(f"In the paper: {name}")
        yield Paragraph("Another corpus, judge, network and budget than any smaller scale has: only orders compare.")
        yield _published(result, name)
    yield from evaluation_sections(result.evaluations, result.steps)


def _budgets(result: Reproduction) -> Iterator[Part]:
    """What each model was trained on, and which are left out."""
    rows = [
        [
            one.label,
            one.stages,
            f"{one.training:,}",
            f"{one.distillation:,}" if one.distillation else NOTHING,
            f"{one.minutes:.1f}",
        ]
        for one in result.trained
    ]
    yield Table("Budgets", ["model", "stages", "sequences", "distilled on", "minutes"], rows, "words")
    for label, why in result.absent.items():
        yield Paragraph(f"{label} is left out: {why}")


def _ratios(result: Reproduction) -> list[Part]:
    """What others have as a multiple of the reference; nothing for one seed."""
    reached = {e.label: [one.reached for one in e.aligned] for e in result.evaluations}
    rows = []
    for label, ratios in result.ratios.items():
        both = zip(reached[label], reached[result.other(label)], strict=True)
        marks = ["" if ours and theirs else UNREACHED for ours, theirs in both]
        name = f"{label}, beside {result.beside[label]}" if label in result.beside else label
        rows.append([name, *(full_text(one, ratio_digits) + mark for one, mark in zip(ratios, marks, strict=True))])
    title = f"GenPPL by {result.judge} as a multiple of that of {result.reference}"
    if result.beside:
        title += ", or of the model that is named"
    note = _RATIOS_ALIGNED if common_entropy(result.evaluations) else _RATIOS
    return section(title, note, Table("Ratios", by_steps(result.steps), rows), level=2)


def _published(result: Reproduction, name: str) -> Table:
    rows = [[label, *map(perplexity_text, values)] for label, values in result.published[name].items()]
    return Table(name, by_steps(result.steps), rows)


def _samples(result: Reproduction) -> Iterator[Part]:
    """The first sample of each model at the fewest, the middle and the most steps."""
    steps = result.steps
    shown = {steps[0], steps[len(steps) // 2], steps[-1]}
    texts = [
        f"{evaluation.label}, K = {one.measurement.steps}: {inline(one.measurement.texts[0])}"
        for evaluation in result.evaluations
        for one in evaluation.aligned
        if one.measurement.steps in shown
    ]
    if texts:
        yield Heading("Samples, at the matched entropy" if common_entropy(result.evaluations) else "Samples", 3)
        yield Items(texts)


def write_study(path: Path, results: Sequence[Reproduction]) -> None:
    """All figures, whole or not at all, in one line.

    Trajectories are pictures, not figures, and are left out; so are paths, which are true on one machine alone, and of
    single seeds the trials of alignments.
    """
    content = [asdict(result) for result in results]
    for result in content:
        single = [one for seeds in result["each"].values() for one in seeds]
        for evaluation in (*result["evaluations"], *single):
            evaluation |= {"trajectories": (), "path": ""}
        for aligned in (aligned for evaluation in single for aligned in evaluation["aligned"]):
            aligned["trials"] = ()
    write_text(path, json.dumps({"studies": content}, ensure_ascii=False, allow_nan=False) + "\n")


def read_study(path: Path) -> list[Reproduction]:
    """The study that `write_study` wrote."""
    try:
        return TypeAdapter(list[Reproduction]).validate_python(read_json(path).get("studies"))
    except ValidationError as error:
        raise ValueError(explain(error, f"{path} is no study that multimdm reproduce wrote")) from None


def study_text(results: Sequence[Reproduction]) -> str:
    """The tables of all judges as Markdown, with budgets, what they must not be read without and, where they are, the
    published figures."""
    return "\n".join(markdown_text(_tables(result)) for result in results)
