"""The page that the quickstart ends with: what each model writes, how good it is, and, folded, all that it rests on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.figure import Figure

from multimdm.evaluation.alignment import Aligned
from multimdm.evaluation.plan import Evaluation
from multimdm.report.against_steps_figure import against_steps_figure
from multimdm.report.document import Contents, Folded, Heading, Paragraph, Part, Pictures, SideBySide, Table
from multimdm.report.evaluation_report import evaluation_sections
from multimdm.report.formats import NOTHING, perplexity_text, share_text, value_text
from multimdm.report.marked_text import joined, judged_words
from multimdm.report.page import page
from multimdm.report.pareto_figure import png_data
from multimdm.report.ratios import NOTE, ratio_table
from multimdm.report.training_figure import distillation_figure, training_figure
from multimdm.report.trajectory_figure import trajectory_figure

_SHOWN = (1, 2, 4)
"""Calls of the texts that the page opens with."""
_ORDERS = {
    "ancestral": "revealed at random",
    "confidence": "surest first",
    "left_to_right": "left to right",
    "rewrite": "rewritten in every call",
}
WRITTEN, QUALITY, VARIETY, COMPARED = (
    "What each model writes",
    "How good it is, beside the limits",
    "Variety and valid sentences",
    "Who is better, in numbers",
)
STAGES, PATHS, REST = "What was trained, and how long it took", "From noise to text", "All measurements and settings"


@dataclass(frozen=True)
class Done:
    """One stage of the quickstart."""

    name: str
    says: str
    steps: int | None
    """Steps of training; None for what trains nothing."""
    seconds: float


@dataclass(frozen=True)
class Story:
    """All that the page tells."""

    evaluations: Sequence[Evaluation]
    """Pairs with one mask and with many, first as trained, then distilled; at last the one with quantile noise."""
    perfect: Evaluation
    """The perfect masked network: what one mask allows at best, each position revealed at random."""
    autoregressive: Evaluation
    """The teacher of quantile noise, token by token."""
    steps: Sequence[int]
    stages: Sequence[Done]
    trained: Mapping[Path, int]
    """Runs with a NELBO, and the steps that were made before them."""
    distilled: Mapping[str, Path]
    """Label of a distilled model -> its run."""
    batch: int
    """Stories per step of training."""
    seed: int


def figures(story: Story) -> dict[str, tuple[Figure, str]]:
    """Name of a file -> picture, and what it shows for those who do not see it."""
    evaluations, real = story.evaluations, story.evaluations[0].real
    _, _, *distilled, _ = evaluations
    assert real is not None
    ar = story.autoregressive.aligned[0].measurement
    # The autoregressive model is a line, since it has no K; the perfect network is a curve like the others.
    levels = {"real stories": real.gen_ppl, f"AR, {ar.nfe} calls": ar.gen_ppl}
    matched = "at the entropy of real stories"
    with_limit = [_with_order(e) for e in (*evaluations, story.perfect)]
    quality = against_steps_figure(
        with_limit,
        lambda m: m.gen_ppl,
        "GenPPL, exact",
        f"GenPPL {matched}",
        log=True,
        reference={name: level.value for name, level in levels.items() if level is not None},
    )
    validity = against_steps_figure(
        with_limit,
        lambda m: m.valid_sentences,
        "share of valid sentences",
        f"Valid sentences {matched}",
        reference={f"AR, {ar.nfe} calls": ar.valid_sentences.value} if ar.valid_sentences is not None else None,
    )
    variety = against_steps_figure(
        with_limit,
        lambda m: m.pooled_entropy,
        "pooled entropy (nats)",
        "Variety: entropy of the words of all samples together",
        reference={"real stories": real.pooled_entropy.value},
    )
    longest = max(trajectory.steps for e in evaluations for trajectory in e.trajectories)
    shown = min(longest, max(4, min(story.steps)))
    paths = {
        f"{e.label}, K = {trajectory.steps}": trajectory
        for e in distilled
        for trajectory in e.trajectories
        if trajectory.steps == shown
    }
    return {
        "quality": (quality, "GenPPL against K for every model and its limits; the tables have the numbers"),
        "validity": (validity, "Share of valid sentences against K for every model; the tables have the numbers"),
        "variety": (variety, "Pooled entropy of samples against K for every model, beside that of real stories"),
        "losses": (training_figure(list(story.trained), story.trained), "Losses of training over steps"),
        "distillation": (distillation_figure(story.distilled), "Losses of distillation over steps"),
        "trajectory": (trajectory_figure(paths), "The beginning of a story, from noise to text, step by step"),
    }


def _with_order(evaluation: Evaluation) -> Evaluation:
    """Its label says in which order it reveals."""
    return replace(evaluation, label=f"{evaluation.label} ({_order(evaluation)})")


def _order(evaluation: Evaluation) -> str:
    return _ORDERS[evaluation.drawing["law"]["order"]]


def quickstart_report(story: Story, drawn: Mapping[str, tuple[Figure, str]]) -> str:
    """The page, with the figures that were drawn."""
    first = story.evaluations[0]
    subtitle = (
        f"Tales, stories of {first.drawing['length']} words and an exact judge; {first.drawing['num']:,} samples per "
        f"measurement, one training seed ({story.seed})"
    )
    return page("Stories in a few calls", subtitle, _sections(story, drawn))


def _sections(story: Story, drawn: Mapping[str, tuple[Figure, str]]) -> Iterator[Part]:
    yield Paragraph(in_one_sentence(story), "lead")
    yield Contents((WRITTEN, QUALITY, VARIETY, COMPARED, STAGES, PATHS, REST))
    yield Heading(WRITTEN)
    yield Paragraph(
        "The first sample of each, at the entropy of real stories. Marked words do not belong: under the source they "
        "are rather replaced by chance than written."
    )
    yield from _written(story)
    yield Heading(QUALITY)
    yield Paragraph(
        "The perfect network knows the stories exactly, and is limited by one mask alone: words of one call are drawn "
        "independently of each other. The autoregressive model takes a call for every token."
    )
    yield _pictures(drawn, "quality")
    yield Heading(VARIETY)
    yield _pictures(drawn, "variety", "validity")
    yield Heading(COMPARED)
    yield Paragraph(NOTE)
    yield ratio_table(compared(story), story.steps)
    yield Folded(STAGES, list(_stages(story, drawn)))
    yield Folded(PATHS, [_pictures(drawn, "trajectory", wide=True)])
    measured = [*story.evaluations, story.perfect, story.autoregressive]
    yield Folded(REST, list(evaluation_sections(measured, story.steps)))


def _pictures(drawn: Mapping[str, tuple[Figure, str]], *names: str, wide: bool = False) -> Pictures:
    return Pictures([(png_data(figure), shows) for figure, shows in (drawn[name] for name in names)], wide)


def _written(story: Story) -> Iterator[Part]:
    shown = [K for K in _SHOWN if K in story.steps]
    for evaluation in story.evaluations:
        found = [one for one in evaluation.aligned if one.measurement.steps in shown]
        words = judged_words([one.measurement.texts[0] for one in found])
        texts = [(_above(one), joined(text)) for one, text in zip(found, words, strict=True)]
        yield SideBySide(evaluation.label, _order(evaluation), texts)


def _above(one: Aligned) -> str:
    m = one.measurement
    calls = f"{m.steps} call{'s' * (m.steps != 1)}"
    return f"{calls}: GenPPL {value_text(m.gen_ppl, perplexity_text)}"


def in_one_sentence(story: Story) -> str:
    """What the page shows, in the numbers of the fewest calls beyond one."""
    K = next((K for K in story.steps if K > 1), story.steps[0])
    masked, quantile = story.evaluations[2], story.evaluations[-1]
    ours, theirs = (_at(evaluation, K).measurement for evaluation in (quantile, masked))
    assert masked.real is not None

    def of(m) -> str:
        sentences = "" if m.valid_sentences is None else f", {share_text(m.valid_sentences.value)} valid sentences"
        return f"{value_text(m.gen_ppl, perplexity_text)}{sentences}"

    real = value_text(masked.real.gen_ppl, perplexity_text)
    return (
        f"In {K} network calls the model with quantile noise writes stories of perplexity {of(ours)}; the masked "
        f"model, distilled with as many steps in all, {of(theirs)}; real stories have {real}."
    )


def _at(evaluation: Evaluation, K: int) -> Aligned:
    return next(one for one in evaluation.aligned if one.measurement.steps == K)


def compared(story: Story) -> list[tuple[Evaluation, Evaluation]]:
    """Who is held against whom."""
    one, many, one_after, many_after, quantile = story.evaluations
    before, after = (many, one), (many_after, one_after)
    return [before, after, (one_after, one), (many_after, many), (quantile, one_after), (quantile, many_after)]


def _stages(story: Story, drawn: Mapping[str, tuple[Figure, str]]) -> Iterator[Part]:
    yield Paragraph(
        "A masked diffusion model is trained, then continued twice with equal budgets: with its one mask, as a "
        "control, and with many masks. Both are distilled along shared-Gumbel paths, again with equal budgets. Beside "
        "them, with as many steps in all: an autoregressive model, and a network that begins as it and learns to read "
        "its numbers. The noise of a story then holds the numbers that would draw it, so that the first call knows "
        "where it is going. This is not in the paper."
    )
    rows = [
        [
            done.name,
            done.says,
            NOTHING if done.steps is None else f"{done.steps:,} × {story.batch} stories",
            f"{done.seconds / 60:.1f}",
        ]
        for done in story.stages
    ]
    total = sum(done.seconds for done in story.stages)
    rows.append(["all", "", "", f"{total / 60:.1f}"])
    yield Table("Stages", ["stage", "what", "budget", "minutes"], rows, "words")
    yield _pictures(drawn, "losses", "distillation")
