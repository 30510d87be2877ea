"""The report of an evaluation or a comparison: one HTML file that opens from disk."""

from collections.abc import Iterator, Sequence

import multimdm
from multimdm.evaluation.nelbo import Nelbo
from multimdm.evaluation.plan import Evaluation
from multimdm.report.against_steps_figure import against_steps_figure, aligned_points, points_near_one
from multimdm.report.distances import chance_text, distances_section
from multimdm.report.formats import (
    BEST_NOTE,
    EXACT,
    INTERVAL,
    NO_BOUND,
    NO_TEXT,
    NOTHING,
    ONE_STEP,
    UNRANKED_NOTE,
    UNREACHED,
    UNREACHED_NOTE,
    by_steps,
    calls_text,
    entropy_text,
    full_text,
    interval_text,
    perplexity_text,
    ratio_text,
    share_text,
    value_text,
)
from multimdm.report.fronts import fronts
from multimdm.report.likelihoods import NOTE as LIKELIHOOD_NOTE
from multimdm.report.likelihoods import TITLE as LIKELIHOOD_TITLE
from multimdm.report.likelihoods import likelihood_texts
from multimdm.report.mask_readings import NOTE as MASKS_NOTE
from multimdm.report.mask_readings import TITLE as MASKS_TITLE
from multimdm.report.mask_readings import mask_reading_table
from multimdm.report.mauves import NOTE as MAUVE_NOTE
from multimdm.report.mauves import TITLE as MAUVE_TITLE
from multimdm.report.mauves import mauve_texts
from multimdm.report.page import Markup, figure_cell, heading, page, paragraph, pictures, quotations, table, warning
from multimdm.report.pareto_figure import pareto_figure, png_data
from multimdm.report.recalls import NOTE, recall_texts
from multimdm.report.shortfalls import HEADER as LOSS_HEADER
from multimdm.report.shortfalls import NOTE as LOSS_NOTE
from multimdm.report.shortfalls import TITLE as LOSS_TITLE
from multimdm.report.shortfalls import shortfall_rows
from multimdm.report.tables import Table, aligned_tables
from multimdm.report.trajectory_picture import legend, trajectory_picture
from multimdm.report.weak_judge import weak_judge_text

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
    "sentences that all agree (it takes samples for independent; equal ones are so together, so for duplicates it is "
    "rather too narrow). Those of distances from the source are by random halves of the samples."
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
) -> Iterator[Markup]:
    """Tables, fronts, samples and trajectories, with how to read them; `curves` against K if no one else has them."""
    yield from _models(evaluations)
    yield from _networks(evaluations)
    if curves:
        yield from _against_steps(evaluations)
    for comparison in aligned_tables(evaluations, steps):
        yield from _comparison(comparison)
        yield from distances_section(comparison)
    yield from _fronts(evaluations, steps)
    yield from _all_measurements(evaluations)
    yield from _samples(evaluations)
    yield from _trajectories(evaluations)
    yield heading("How to read this")
    first = evaluations[0]
    brackets = _OVER_SAMPLES if first.seeds == 1 else _OVER_SEEDS.format(spread=first.spread)
    yield paragraph(_NOTES.format(brackets=brackets))
    yield from _settings(evaluations)


def _models(evaluations: Sequence[Evaluation]) -> Iterator[Markup]:
    yield heading("Models" if len(evaluations) > 1 else "Model")
    with_nelbo = any(evaluation.nelbo is not None for evaluation in evaluations)
    loss = _loss_name([evaluation.nelbo for evaluation in evaluations if evaluation.nelbo is not None])
    most = "perplexity at most" if "NELBO" in loss else "perplexity"
    header = ["model", "kind", *([f"{loss} (nats per token)", most] if with_nelbo else [])]
    rows = []
    for e in evaluations:
        row = [e.label, e.description]
        if with_nelbo:
            n = e.nelbo
            bound = perplexity_text(n.perplexity) if n is not None and n.bound else NO_BOUND
            bound += f", {ONE_STEP}" if n is not None and n.one_step else ""
            bound = f"{bound}, exactly: its {EXACT}" if n is not None and n.exact else bound
            row += [f"{n.total:.4f} ± {n.standard_error:.4f}", bound] if n else [NOTHING] * 2
        rows.append(row)
    yield table("Models", header, rows, "words")
    likelihoods = [[e.label, text] for e in evaluations for text in likelihood_texts(e)]
    if likelihoods:
        yield heading(LIKELIHOOD_TITLE, 3)
        yield paragraph(LIKELIHOOD_NOTE)
        yield table("Likelihoods", ["model", "likelihood"], likelihoods, "words")
    mauves = [[e.label, text] for e in evaluations for text in mauve_texts(e)]
    if mauves:
        yield heading(MAUVE_TITLE, 3)
        yield paragraph(MAUVE_NOTE)
        yield table(MAUVE_TITLE, ["model", "MAUVE"], mauves, "words")
    recalls = [[e.label, text] for e in evaluations for text in recall_texts(e)]
    if recalls:
        yield heading("Recall in one step", 3)
        yield paragraph(NOTE)
        yield table("Recall", ["model", "recall"], recalls, "words")
    entropies = {e.nats_per_token for e in evaluations if e.nats_per_token is not None}
    for nats in sorted(entropies):
        yield paragraph(f"The exact entropy of the source is {nats:.4f} nats per token: no {loss} can be less.")
    for real in dict.fromkeys(e.real for e in evaluations if e.real is not None):
        said = (
            f"; the judge gives it a perplexity of {full_text(real.gen_ppl, perplexity_text)}" if real.gen_ppl else ""
        )
        pooled = f"pooled {full_text(real.pooled_entropy)}"
        yield paragraph(f"Real text ({real.name}) has entropy {full_text(real.entropy)}, {pooled}{said}.")
    if any(e.measurements for e in evaluations) and all(e.real is None for e in evaluations):
        yield paragraph(NO_TEXT)
    for e in evaluations:
        if weak := weak_judge_text(e):
            yield warning(f"{e.label}: {weak}")


def _loss_name(found: Sequence[Nelbo]) -> str:
    """Of what these are: a bound, of autoregressive models the thing itself, or some of both."""
    exact = {nelbo.exact for nelbo in found}
    return EXACT if exact == {True} else f"NELBO, or {EXACT}" if True in exact else "NELBO"


def _networks(evaluations: Sequence[Evaluation]) -> Iterator[Markup]:
    """What networks make of their masks, and how far they are from the exact predictions, where that is known."""
    header, rows = mask_reading_table(evaluations)
    if rows:
        yield heading(MASKS_TITLE, 3)
        yield paragraph(MASKS_NOTE)
        yield table(MASKS_TITLE, header, rows, "words")
    if rows := shortfall_rows(evaluations):
        yield heading(LOSS_TITLE, 3)
        yield paragraph(LOSS_NOTE)
        yield table(LOSS_TITLE, LOSS_HEADER, rows, "words")


def _comparison(comparison: Table) -> Iterator[Markup]:
    yield heading(comparison.name.capitalize())
    yield paragraph(f"{comparison.caption} GenPPL with its {INTERVAL}, then entropy and temperature. {BEST_NOTE}")
    rows = []
    best = [comparison.best(column) for column in range(len(comparison.steps))]
    for label, cells in comparison.rows:
        row: list[str | Markup] = [label]
        for column, (K, cell) in enumerate(zip(comparison.steps, cells, strict=True)):
            if cell is None:
                row.append(NOTHING)
                continue
            m = cell.measurement
            value = value_text(m.gen_ppl, perplexity_text) + ("" if cell.reached else f" {UNREACHED}")
            value = f"{value} {calls_text(m.nfe, K)}".strip()
            interval = interval_text(m.gen_ppl, perplexity_text)
            below = f"{interval} · H {entropy_text(m.entropy.value)} · τ {m.temperature:.4g}"
            row.append(figure_cell(value, below.removeprefix(" · "), label in best[column]))
        rows.append(row)
    yield table(comparison.name.capitalize(), by_steps(comparison.steps), rows)
    if comparison.marked:
        yield paragraph(UNREACHED_NOTE)
    if comparison.unranked:
        yield paragraph(UNRANKED_NOTE)


def _against_steps(evaluations: Sequence[Evaluation]) -> Iterator[Markup]:
    """GenPPL and entropy as K grows, where there are several K."""
    aligned = any(e.aligned for e in evaluations)
    points_of = aligned_points if aligned else points_near_one
    measured = [m for e in evaluations for m, _ in points_of(e)]
    if len({m.steps for m in measured}) < 2:
        return
    taus = {m.temperature for m in measured}
    where = "at matched entropy" if aligned else f"at τ = {min(taus):g}" if len(taus) == 1 else "at τ nearest to 1"
    real = evaluations[0].real
    yield heading("Against the number of calls")
    yield paragraph(f"What more network calls bring, {where}. The dashed line is real text.")
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
    yield pictures(shown)


def _fronts(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> Iterator[Markup]:
    if all(m.gen_ppl is None for e in evaluations for m in e.measurements):
        return
    if all(len({m.temperature for m in e.measurements}) < 2 for e in evaluations):
        return
    yield heading("Perplexity against entropy")
    yield paragraph("Each curve is one temperature sweep; the farther to the lower right, the better.")
    yield pictures(
        (png_data(pareto_figure(curves, evaluations[0].real, title)), _alternative(title, list(curves)))
        for title, curves in fronts(evaluations, steps).items()
    )


def _alternative(title: str, labels: Sequence[str]) -> str:
    """What the picture shows, for those who do not see it."""
    return (
        f"{title}: GenPPL against sample entropy as the temperature varies, one curve each for {', '.join(labels)}. "
        "The table of all measurements has the numbers."
    )


def _all_measurements(evaluations: Sequence[Evaluation]) -> Iterator[Markup]:
    if not any(e.measurements for e in evaluations):
        return
    yield heading("All measurements")
    if chance := chance_text(m for e in evaluations for m in e.measurements):
        yield paragraph(f"Distances are from the source: {chance}")
    tales = any(m.valid_stories is not None for e in evaluations for m in e.measurements)
    calls = any(m.nfe != m.steps for e in evaluations for m in e.measurements)
    header = ["model", "K", *(["calls"] if calls else []), "τ", "GenPPL", "entropy", "pooled"]
    header += ["valid stories", "valid sentences", "token distance", "pair distance"] if tales else []
    about = any(m.subject_distance is not None for e in evaluations for m in e.measurements)
    header += ["subject distance", "of two subjects"] if about else []
    header += ["distinct-1", "distinct-2", "distinct-3", "duplicates"]
    rows = []
    for e in evaluations:
        found = [(m, "") for m in e.measurements]
        found += [(a.measurement, "aligned" + ("" if a.reached else f" {UNREACHED}")) for a in e.aligned]
        # An autoregressive model has the same measurement for every K.
        unique = {(m.steps, m.temperature, kind): (m, kind) for m, kind in found}
        for m, kind in (unique[key] for key in sorted(unique)):
            row: list[str | Markup] = [e.label, str(m.steps), *([str(m.nfe)] if calls else [])]
            row.append(figure_cell(f"{m.temperature:.4g}", kind))
            row.append(_with_interval(m.gen_ppl, perplexity_text))
            row += [_with_interval(x, entropy_text) for x in (m.entropy, m.pooled_entropy)]
            if tales:
                row += [_with_interval(x, share_text) for x in (m.valid_stories, m.valid_sentences)]
                row += [_with_interval(x, entropy_text) for x in (m.token_distance, m.pair_distance)]
            if about:
                row += [_with_interval(x, entropy_text) for x in (m.subject_distance, m.subject_pair_distance)]
            row += [_with_interval(d, ratio_text) for d in m.distinct]
            row.append(_with_interval(m.duplicates, share_text))
            rows.append(row)
    yield table("All measurements", header, rows, "dense")


def _with_interval(estimate, text) -> Markup:
    return figure_cell(value_text(estimate, text), interval_text(estimate, text))


def _samples(evaluations: Sequence[Evaluation]) -> Iterator[Markup]:
    """At each K, of the temperature nearest to one."""
    if not any(m.texts for e in evaluations for m in e.measurements):
        return
    yield heading("Samples")
    for e in evaluations:
        for m, _ in points_near_one(e):
            yield heading(f"{e.label}, K = {m.steps}, τ = {m.temperature:g}", 3)
            yield quotations(m.texts)


def _trajectories(evaluations: Sequence[Evaluation]) -> Iterator[Markup]:
    if not any(e.trajectories for e in evaluations):
        return
    yield heading("Trajectories")
    yield paragraph("How the first sample came to be; numbers after a sign name masks.")
    for e in evaluations:
        for trajectory in e.trajectories:
            yield heading(f"{e.label}, K = {trajectory.steps}, τ = {trajectory.temperature:g}", 3)
            yield legend(trajectory)
            yield trajectory_picture(trajectory)


def _settings(evaluations: Sequence[Evaluation]) -> Iterator[Markup]:
    yield heading("Settings")
    each = [_drawn(evaluation) for evaluation in evaluations]
    # Checkpoints may advise different ways to be drawn: what is not common to all stands with its model.
    common = {name for name, value in each[0].items() if all(other.get(name) == value for other in each)}
    rows: list[Sequence[str | Markup]] = [["multimdm", multimdm.__version__], ["judge", str(evaluations[0].judge)]]
    rows += [[name, value] for name, value in each[0].items() if name in common]
    for evaluation, drawn in zip(evaluations, each, strict=True):
        own = "".join(f", {name} {value}" for name, value in drawn.items() if name not in common)
        rows.append([evaluation.label, f"{evaluation.path} (sha256 {evaluation.fingerprint[:16]}){own}"])
    yield table("Settings", [], rows, "settings")


def _drawn(evaluation: Evaluation) -> dict[str, str]:
    """How samples were drawn, in words. K and tau vary; the batch size changes nothing."""
    drawing = {**evaluation.drawing, **evaluation.drawing.get("law", {})}
    left_out = ("law", "steps", "temperature", "batch_size")
    shown = {name: value for name, value in drawing.items() if name not in left_out and value is not None}
    return {name.replace("_", " "): str(value) for name, value in shown.items()}
