"""Figures beside those of samples, as tables: one row for each model and setting.

A listing says which results of an evaluation it shows, and in which columns; pages, the terminal and Markdown follow. A
new figure is a field of `Evaluation`, a task of `plan.py`, and a listing here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from multimdm.evaluation.bootstrap import Estimate, perplexity
from multimdm.evaluation.mask_reading import MaskReading
from multimdm.evaluation.mauve import Mauve
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.evaluation.recall import Recall
from multimdm.evaluation.sampler_likelihood import SamplerLikelihood
from multimdm.evaluation.shortfall import Shortfall
from multimdm.report.columns import Column, all_samples
from multimdm.report.document import Part, Table, section
from multimdm.report.formats import (
    EXACT_JUDGE,
    INTERVAL,
    NOTHING,
    UNREACHED,
    UNREACHED_NOTE,
    entropy_text,
    full_text,
    perplexity_text,
    ratio_digits,
)
from multimdm.report.ratios import ratio_of


@dataclass(frozen=True)
class Listing:
    """What is shown of some results."""

    title: str
    note: str
    results: Callable[[Evaluation], Sequence[Any]]
    columns: tuple[Column[Any], ...]
    """After the model's own; one that is a sentence stands alone."""
    line: str = ""
    """How a line in the terminal begins; without it the terminal has a table."""

    def rows(self, evaluation: Evaluation) -> list[list[str]]:
        """One row for each result."""
        return [[column.of(one) for column in self.columns] for one in self.results(evaluation)]

    def section(self, evaluations: Sequence[Evaluation]) -> list[Part]:
        """The section of the models that have any of it."""
        rows = [[e.label, *row] for e in evaluations for row in self.rows(e)]
        header = ["model", *(column.title for column in self.columns)]
        return section(self.title, self.note, Table(self.title, header, rows, "words"))


_ORDERS = {"confidence": "the most certain first", "left_to_right": "left to right"}


def _likelihood(one: SamplerLikelihood) -> str:
    return (
        f"exact likelihood, {_ORDERS[one.order]}, K = {one.steps}, τ = {one.temperature:g}: {full_text(one.nats)} nats "
        f"per token, perplexity {perplexity_text(perplexity(one.nats.value))}"
        + ("" if one.source is None else f"; the source itself gives these texts {one.source:.4f}")
    )


LIKELIHOODS = Listing(
    "Exact likelihood under samplers",
    "-log p of held-out text in nats per token under a sampler whose order of revealing follows from the state, with "
    f"its {INTERVAL} over sequences: not a bound, and of K calls.",
    lambda e: e.likelihoods,
    (Column("likelihood", _likelihood),),
    line="{}",
)


def _mauve(one: Mauve) -> str:
    return (
        f"MAUVE by {one.reader}, K = {one.steps}, τ = {one.temperature:g}: {full_text(one.value)}; {one.num:,} real "
        f"texts have {entropy_text(one.real)}"
    )


MAUVES = Listing(
    "MAUVE",
    "How near samples are to real text in the features of a language model, from 0 to 1, with its "
    f"{INTERVAL} over random halves of both, or over training seeds where there are several; beside it what as many "
    "other real texts have. Figures of other features or other numbers of texts cannot be compared.",
    lambda e: tuple(dict.fromkeys(e.mauves)),  # an autoregressive model has the same one for every K
    (Column("MAUVE", _mauve),),
    line="{}",
)


@dataclass(frozen=True)
class _Beside:
    """Samples beside real text, by the same judge."""

    samples: Measurement
    kind: str
    """Whether they are aligned ones."""
    ratio: Estimate


def _beside_real_text(evaluation: Evaluation) -> list[_Beside]:
    real = None if evaluation.real is None else evaluation.real.gen_ppl
    if real is None or evaluation.judge == EXACT_JUDGE:
        return []
    judged = [(m, kind, m.gen_ppl) for m, kind in all_samples(evaluation)]
    return [_Beside(m, kind, ratio_of(ppl, real)) for m, kind, ppl in judged if ppl is not None]


def _verdict_of_ratio(one: _Beside) -> str:
    low, high = one.ratio.low, one.ratio.high
    if low is None or high is None:
        return NOTHING
    if low <= 1 <= high:
        return "as probable as real text"
    return "less probable than real text" if one.ratio.value > 1 else "more probable than real text: too predictable"


LIKELIHOOD_RATIOS = Listing(
    "Likelihood ratio by the judge",
    "The probability that the judge gives to a token of real text, as a multiple of what it gives to one of the "
    f"samples (geometric means), with its {INTERVAL} from those of both. It is 1 for equal laws; below 1 is no praise: "
    "samples are then more predictable than real text.",
    _beside_real_text,
    (
        Column("K", lambda one: one.samples.steps),
        Column("τ", lambda one: f"{one.samples.temperature:.4g} {one.kind}".rstrip()),
        Column("ratio", lambda one: one.ratio, lambda ratio: full_text(ratio, ratio_digits)),
        Column("so that samples are", _verdict_of_ratio),
    ),
)


def _difference(reading: MaskReading) -> str:
    return f"{reading.difference:.4f} ± {reading.standard_error:.4f}"


def _verdict(reading: MaskReading) -> str:
    """Whether the method was tested at all."""
    if not reading.tested:
        return "the network hardly reads its masks: what many masks can do was not tested"
    return "the masks of other positions are read" if reading.own_by_rule else "the masks are read"


MASKS = Listing(
    "What masks tell",
    "The NELBO with random masks shown to the network, less that with the true ones, in nats per token ± standard "
    "error; times and hidden positions are the same. Who cannot tell masks apart has 0. Where own masks are read by "
    "Bayes' rule, it is what those of other positions tell.",
    lambda e: [] if e.mask_reading is None else [e.mask_reading],
    (
        Column("difference", _difference),
        Column("with random masks", lambda one: one.random, "{:.4f}".format),
        Column("so that", _verdict),
    ),
    line="what masks tell: {} nats per token (NELBO {} with random masks shown): {}",
)


def _marked_recalls(evaluation: Evaluation) -> list[tuple[Recall, str]]:
    """The second temperature is marked if it does not give the entropy that was asked for."""
    reached = all(one.reached for one in evaluation.aligned if one.measurement.steps == 1)
    marks = ["", "" if reached else UNREACHED]
    return list(zip(evaluation.recalls, marks, strict=False))


def _over(recall: Recall) -> str:
    each = " for each, proposed by the teacher" if recall.proposed else ""
    return f"{recall.sequences:,} texts, {recall.strings:,} noise strings{each}"


def _recall(marked: tuple[Recall, str]) -> str:
    one, mark = marked
    return f"{full_text(one.nats)} nats per token at temperature {one.temperature:.4g}{mark} ({_over(one)})"


RECALLS = Listing(
    "Recall in one step",
    "Recall: -log of the probability that one step gives to held-out text, in nats per token; lower is better. It "
    "shows what a model has forgotten, which the perplexity of its samples rewards.",
    _marked_recalls,
    (Column("recall", _recall),),
    line="recall in one step {}",
)


def recall_by_temperature(evaluations: Sequence[Evaluation]) -> list[Part]:
    """Models and temperatures in one small table."""
    found = [(e.label, _marked_recalls(e)) for e in evaluations if e.recalls]
    if not found:
        return []
    rows = [
        [label, full_text(at_one.nats), *(f"{full_text(r.nats)}, τ = {r.temperature:.4g}{mark}" for r, mark in aligned)]
        for label, ((at_one, _), *aligned) in found
    ]
    first = found[0][1]
    header = ["model", "at temperature 1", "at that of the aligned samples at K = 1"][: 1 + len(first)]
    notes = [UNREACHED_NOTE] if any(mark for _, recalls in found for _, mark in recalls) else []
    note = f"{RECALLS.note} {_over(first[0][0])}."
    return section(RECALLS.title, note, Table(RECALLS.title, header, rows), notes)


def _states(one: Shortfall) -> str:
    if one.states == "data":
        return f"{one.sequences:,} noised texts"
    return f"{one.sequences:,} samples, K = {one.steps}, τ = {one.temperature:g}"


def _by_time(one: Shortfall) -> str:
    return ", ".join(f"{at.time:.2f}: {entropy_text(at.nats.value)}" for at in one.by_time)


SHORTFALLS = Listing(
    "Where the network loses",
    "KL(perfect || network) in nats per hidden token: how far predictions are from the exact ones, on noised texts and "
    f"on the states that the sampler visits, with its {INTERVAL}, and by time from noise (t = 1) to text.",
    lambda e: e.shortfalls,
    (Column("states", _states), Column("all times", lambda one: one.nats, full_text), Column("by time", _by_time)),
)

LISTINGS = (LIKELIHOODS, LIKELIHOOD_RATIOS, MAUVES, MASKS, RECALLS, SHORTFALLS)
"""All listings, in the order in which they are shown."""


def listing_sections(evaluations: Sequence[Evaluation], listings: Sequence[Listing] = LISTINGS) -> Iterator[Part]:
    """Each with its note, as far as there are results."""
    for listing in listings:
        yield from listing.section(evaluations)
