"""The report of an evaluation or a comparison: one HTML file that opens from disk."""

from collections.abc import Iterator, Sequence

import multimdm
from multimdm.evaluation.plan import Evaluation
from multimdm.report.against_steps_figure import against_steps_figure, aligned_points, points_near_one
from multimdm.report.beside_gen_ppl import chance_text, distance_sections, weak_judge_text
from multimdm.report.columns import all_samples, shown_figures
from multimdm.report.document import Cell, Heading, Paragraph, Part, Pictures, Quotations, Table
from multimdm.report.formats import INTERVAL, NO_TEXT, full_text, perplexity_text
from multimdm.report.listings import listing_sections
from multimdm.report.nelbos import loss_name, models_table
from multimdm.report.page import page
from multimdm.report.pareto_figure import fronts, pareto_figure, png_data
from multimdm.report.tables import aligned_tables, comparison_section
from multimdm.report.trajectory_figure import trajectory_picture

_NOTES = (
    "GenPPL is exp(negative log-likelihood per token) of the samples as the judge sees them, over all samples; only "
    "repeated end-of-text tokens are left out. It can be lowered by dull samples, so it must be read with the entropy: "
    "the unigram entropy of a sample in nats, averaged over samples. That says nothing of samples that resemble each "
    "other; the pooled entropy, of all samples together, does. Distinct-n is the share of different n-grams "
    "within a sample; duplicates are samples that equal another one. {brackets} "
    "K steps are K network calls; an autoregressive model takes one for each token, whatever K."
)
_OVER_SAMPLES = (
    f"Brackets are {INTERVAL}s over samples: percentile bootstrap, and Wilson's for stories, duplicates and "
    "sentences that all agree (duplicates are not independent, so theirs is somewhat too narrow). Those of distances "
    "from the source are by random halves of the samples."
)
_OVER_SEEDS = (
    f"Figures are means {{spread}} (of GenPPL the geometric one), brackets Student's {INTERVAL}s {{spread}}; texts are "
    "of the first."
)


def report(evaluations: Sequence[Evaluation], steps: Sequence[int], title: str) -> str:
    """The page, for one model or several."""
    first = evaluations[0]
    judge = f"judge: {first.judge}" if first.judge is not None else "no judge"
    subtitle = f"{judge}; {first.drawing['num']:,} samples of {first.drawing['length']:,} tokens per measurement"
    return page(title, subtitle, evaluation_sections(evaluations, steps, curves=True))


def evaluation_sections(
    evaluations: Sequence[Evaluation], steps: Sequence[int], curves: bool = False
) -> Iterator[Part]:
    """Tables, fronts, samples and trajectories, with how to read them; `curves` against K if no one else has them."""
    yield from _models(evaluations)
    yield from listing_sections(evaluations)
    if curves:
        yield from _against_steps(evaluations)
    for comparison in aligned_tables(evaluations, steps):
        yield from comparison_section(comparison)
        yield from distance_sections(comparison)
    yield from _fronts(evaluations, steps)
    yield from _all_measurements(evaluations)
    yield from _samples(evaluations)
    yield from _trajectories(evaluations)
    yield Heading("How to read this")
    first = evaluations[0]
    brackets = _OVER_SAMPLES if first.seeds == 1 else _OVER_SEEDS.format(spread=first.spread)
    yield Paragraph(_NOTES.format(brackets=brackets))
    yield from _settings(evaluations)


def _models(evaluations: Sequence[Evaluation]) -> Iterator[Part]:
    """What they are, their NELBO, and what is known of real text and of the judge."""
    yield Heading("Models" if len(evaluations) > 1 else "Model")
    yield models_table(evaluations)
    entropies = {e.nats_per_token for e in evaluations if e.nats_per_token is not None}
    loss = loss_name(evaluations)
    for nats in sorted(entropies):
        yield Paragraph(f"The exact entropy of the source is {nats:.4f} nats per token: no {loss} can be less.")
    for real in dict.fromkeys(e.real for e in evaluations if e.real is not None):
        judged = full_text(real.gen_ppl, perplexity_text)
        said = f"; the judge gives it a perplexity of {judged}" if real.gen_ppl else ""
        pooled = f"pooled {full_text(real.pooled_entropy)}"
        yield Paragraph(f"Real text ({real.name}) has entropy {full_text(real.entropy)}, {pooled}{said}.")
    if any(e.measurements for e in evaluations) and all(e.real is None for e in evaluations):
        yield Paragraph(NO_TEXT)
    for e in evaluations:
        if weak := weak_judge_text(e):
            yield Paragraph(f"{e.label}: {weak}", "warning")


def _against_steps(evaluations: Sequence[Evaluation]) -> Iterator[Part]:
    """GenPPL and entropy as K grows, where there are several K."""
    aligned = any(e.aligned for e in evaluations)
    points_of = aligned_points if aligned else points_near_one
    measured = [m for e in evaluations for m, _ in points_of(e)]
    if len({m.steps for m in measured}) < 2:
        return
    taus = {m.temperature for m in measured}
    where = "at matched entropy" if aligned else f"at τ = {min(taus):g}" if len(taus) == 1 else "at τ nearest to 1"
    real = evaluations[0].real
    yield Heading("Against the number of calls")
    yield Paragraph(f"What more network calls bring, {where}. The dashed line is real text.")
    shown = []
    for name, figure_of, of_real in (
        ("GenPPL", lambda m: m.gen_ppl, real and real.gen_ppl),
        ("entropy", lambda m: m.entropy, real and real.entropy),
    ):
        if all(figure_of(m) is None for m in measured):
            continue
        reference = None if of_real is None else {"real text": of_real.value}
        title = f"{name} {where}"
        figure = against_steps_figure(evaluations, figure_of, name, title, name == "GenPPL", reference, points_of)
        labels = ", ".join(e.label for e in evaluations)
        numbers = "The table of all measurements has the numbers."
        shown.append((png_data(figure), f"{name} against K {where}, one line each for {labels}. {numbers}"))
    yield Pictures(shown)


def _fronts(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> Iterator[Part]:
    if all(m.gen_ppl is None for e in evaluations for m in e.measurements):
        return
    if all(len({m.temperature for m in e.measurements}) < 2 for e in evaluations):
        return
    yield Heading("Perplexity against entropy")
    yield Paragraph("Each curve is one temperature sweep; the farther to the lower right, the better.")
    yield Pictures(
        [
            (png_data(pareto_figure(curves, evaluations[0].real, title)), _alternative(title, list(curves)))
            for title, curves in fronts(evaluations, steps).items()
        ]
    )


def _alternative(title: str, labels: Sequence[str]) -> str:
    """What the picture shows, for those who do not see it."""
    return (
        f"{title}: GenPPL against sample entropy as the temperature varies, one curve each for {', '.join(labels)}. "
        "The table of all measurements has the numbers."
    )


def _all_measurements(evaluations: Sequence[Evaluation]) -> Iterator[Part]:
    if not any(e.measurements for e in evaluations):
        return
    yield Heading("All measurements")
    if chance := chance_text(m for e in evaluations for m in e.measurements):
        yield Paragraph(f"Distances are from the source: {chance}")
    found = [(e.label, m, kind) for e in evaluations for m, kind in all_samples(e)]
    calls = any(m.nfe != m.steps for _, m, _ in found)
    figures = shown_figures(m for _, m, _ in found)
    header = ["model", "K", *(["calls"] if calls else []), "τ", *(figure.title for figure in figures)]
    rows: list[list[str | Cell]] = []
    for label, m, kind in found:
        first = [label, str(m.steps), *([str(m.nfe)] if calls else [])]
        rows.append([*first, Cell(f"{m.temperature:.4g}", kind), *(figure.cell(m) for figure in figures)])
    yield Table("All measurements", header, rows, "dense")


def _samples(evaluations: Sequence[Evaluation]) -> Iterator[Part]:
    """At each K, of the temperature nearest to one."""
    if not any(m.texts for e in evaluations for m in e.measurements):
        return
    yield Heading("Samples")
    for e in evaluations:
        for m, _ in points_near_one(e):
            yield Heading(f"{e.label}, K = {m.steps}, τ = {m.temperature:g}", 3)
            yield Quotations(m.texts)


def _trajectories(evaluations: Sequence[Evaluation]) -> Iterator[Part]:
    if not any(e.trajectories for e in evaluations):
        return
    yield Heading("Trajectories")
    yield Paragraph("How the first sample came to be; numbers after a sign name masks.")
    for e in evaluations:
        for trajectory in e.trajectories:
            yield Heading(f"{e.label}, K = {trajectory.steps}, τ = {trajectory.temperature:g}", 3)
            yield trajectory_picture(trajectory)


def _settings(evaluations: Sequence[Evaluation]) -> Iterator[Part]:
    yield Heading("Settings")
    each = [_drawn(evaluation) for evaluation in evaluations]
    # Checkpoints may advise different ways to be drawn: what is not common to all stands with its model.
    common = {name for name, value in each[0].items() if all(other.get(name) == value for other in each)}
    rows = [["multimdm", multimdm.__version__], ["judge", str(evaluations[0].judge)]]
    rows += [[name, value] for name, value in each[0].items() if name in common]
    for evaluation, drawn in zip(evaluations, each, strict=True):
        own = "".join(f", {name} {value}" for name, value in drawn.items() if name not in common)
        rows.append([evaluation.label, f"{evaluation.path} (sha256 {evaluation.fingerprint[:16]}){own}"])
    yield Table("Settings", [], rows, "settings")


def _drawn(evaluation: Evaluation) -> dict[str, str]:
    """How samples were drawn, in words. K and tau vary; the batch size changes nothing."""
    drawing = {**evaluation.drawing, **evaluation.drawing.get("law", {})}
    left_out = ("law", "steps", "temperature", "batch_size")
    shown = {name: value for name, value in drawing.items() if name not in left_out and value is not None}
    return {name.replace("_", " "): str(value) for name, value in shown.items()}
