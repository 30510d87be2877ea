"""The page that the quickstart ends with: what was done, who wins where, and all that it rests on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from multimdm.evaluation.alignment import Aligned
from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.plan import Evaluation
from multimdm.report.against_steps_figure import against_steps_figure
from multimdm.report.distillation_figure import distillation_figure
from multimdm.report.evaluation_report import evaluation_sections
from multimdm.report.formats import INTERVAL, full_text, perplexity_text
from multimdm.report.page import Markup, heading, page, paragraph, pictures, table
from multimdm.report.pareto_figure import png_data
from multimdm.report.training_figure import training_figure
from multimdm.report.trajectory_figure import trajectory_figure


@dataclass(frozen=True)
class Done:
    """One stage of the quickstart."""

    name: str
    says: str
    steps: int | None
    """Of training; None for what trains nothing."""
    seconds: float


@dataclass(frozen=True)
class Story:
    """All that the page tells."""

    evaluations: Sequence[Evaluation]
    """In pairs: with one mask, with many; first as trained, then distilled. At last the one with quantile noise."""
    steps: Sequence[int]
    stages: Sequence[Done]
    trained: Mapping[Path, int]
    """Runs with a NELBO, and the steps that were made before them."""
    distilled: Mapping[str, Path]
    """Label -> run."""
    batch: int
    """Stories per step of training."""
    seed: int


def figures(story: Story) -> dict[str, tuple[Figure, str]]:
    """Name of a file -> picture, and what it shows for those who do not see it."""
    evaluations, real = story.evaluations, story.evaluations[0].real
    _, _, *distilled, _ = evaluations
    reference = {"real stories": real.gen_ppl.value} if real is not None and real.gen_ppl is not None else None
    matched = "at the entropy of real stories"
    quality = against_steps_figure(
        evaluations, lambda m: m.gen_ppl, "GenPPL, exact", f"GenPPL {matched}", log=True, reference=reference
    )
    validity = against_steps_figure(
        evaluations, lambda m: m.valid_stories, "share of valid stories", f"Validity {matched}"
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
        "quality": (quality, "GenPPL against K for every model; the tables have the numbers"),
        "validity": (validity, "Share of valid stories against K for every model; the tables have the numbers"),
        "losses": (training_figure(list(story.trained), story.trained), "Losses of training over steps"),
        "distillation": (distillation_figure(story.distilled), "Losses of distillation over steps"),
        "trajectory": (trajectory_figure(paths), "The beginning of a story, from noise to text, step by step"),
    }


def quickstart_report(story: Story, drawn: Mapping[str, tuple[Figure, str]]) -> str:
    """The page, with the figures that were drawn."""
    first = story.evaluations[0]
    subtitle = (
        f"Tales, stories of {first.drawing['length']} words and an exact judge; {first.drawing['num']:,} samples per "
        f"measurement, one training seed ({story.seed})"
    )
    return page("One mask or many, in a few steps", subtitle, _sections(story, drawn))


def _sections(story: Story, drawn: Mapping[str, tuple[Figure, str]]) -> Iterator[Markup]:
    yield heading("What came out")
    for sentence in verdicts(story):
        yield paragraph(sentence)
    yield pictures((png_data(figure), alt) for figure, alt in (drawn["quality"], drawn["validity"]))
    yield heading("From noise to text")
    yield pictures([(png_data(drawn["trajectory"][0]), drawn["trajectory"][1])], wide=True)
    yield heading("What was done")
    yield paragraph(
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
            "–" if done.steps is None else f"{done.steps:,} × {story.batch} stories",
            f"{done.seconds / 60:.1f}",
        ]
        for done in story.stages
    ]
    total = sum(done.seconds for done in story.stages)
    yield table(
        "Stages", ["stage", "what", "budget", "minutes"], [*rows, ["all", "", "", f"{total / 60:.1f}"]], "words"
    )
    yield pictures((png_data(figure), alt) for figure, alt in (drawn["losses"], drawn["distillation"]))
    yield from evaluation_sections(story.evaluations, story.steps)


def verdicts(story: Story) -> Iterator[str]:
    """Plain sentences: who has the lower GenPPL at matched entropy, and what distillation changed."""
    one, many, one_after, many_after, quantile = story.evaluations
    yield _versus("Before distillation", many, one)
    yield _versus("After distillation", many_after, one_after)
    for before, after in ((one, one_after), (many, many_after)):
        yield _versus("Distilled against not distilled", after, before)
    yield _versus("With as many steps in all", quantile, one_after)
    yield _versus("With as many steps in all", quantile, many_after)
    yield (
        f"Compared is exact GenPPL at the entropy of real stories; one is called lower if the {INTERVAL}s over samples "
        "do not overlap. They say nothing of other training seeds: there is one."
    )


def _versus(when: str, ours: Evaluation, theirs: Evaluation) -> str:
    found: dict[str, list[str]] = {"lower": [], "higher": [], "alike": [], "unmatched": []}
    for a, b in zip(ours.aligned, theirs.aligned, strict=True):
        found[_compare(a, b)].append(_at(a, b))
    parts = []
    if found["lower"]:
        parts.append(f"lower at {'; '.join(found['lower'])}")
    if found["higher"]:
        parts.append(f"higher at {'; '.join(found['higher'])}")
    if found["alike"]:
        parts.append(f"not to be told apart at {'; '.join(found['alike'])}")
    if found["unmatched"]:
        parts.append(f"not comparable, since an entropy was not reached, at {'; '.join(found['unmatched'])}")
    return f"{when}: GenPPL of {ours.label}, beside {theirs.label}, is {', '.join(parts)}."


def _compare(a: Aligned, b: Aligned) -> str:
    one, other = a.measurement.gen_ppl, b.measurement.gen_ppl
    if one is None or other is None or not (a.reached and b.reached):
        return "unmatched"
    if one.overlaps(other):
        return "alike"
    return "lower" if one.value < other.value else "higher"


def _at(a: Aligned, b: Aligned) -> str:
    def brief(estimate: Estimate | None) -> str:
        return full_text(estimate, perplexity_text).split(" ")[0]

    return f"K = {a.measurement.steps} ({brief(a.measurement.gen_ppl)} against {brief(b.measurement.gen_ppl)})"
