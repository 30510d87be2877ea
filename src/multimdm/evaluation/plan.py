"""What is to be measured of a checkpoint, as tasks that can be watched and taken up again, and what came of it.

Every result is listed once, in `tasks`; a task says which field of `Evaluation` its result belongs to, and `collect`
gathers them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal

from multimdm.evaluation.alignment import USUAL_DRAWS, Aligned
from multimdm.evaluation.judges.base import Reader
from multimdm.evaluation.mask_reading import MaskReading, reads_masks
from multimdm.evaluation.mauve import Mauve
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.nelbo import Nelbo
from multimdm.evaluation.progress import Progress, ignore, leave_if_asked, measuring_listener
from multimdm.evaluation.real_text import RealFigures, RealText
from multimdm.evaluation.recall import Recall, has_recall
from multimdm.evaluation.sampler_likelihood import SamplerLikelihood, StateOrder
from multimdm.evaluation.shortfall import Shortfall
from multimdm.evaluation.subject import Subject
from multimdm.evaluation.trajectory import Trajectory, trajectory

_SINGLE = ("real", "nelbo", "mask_reading")
"""Fields of an evaluation that hold one result; the others hold as many as there are."""


@dataclass(frozen=True)
class Plan:
    """What is measured; for every K, a measurement at each temperature, and one at the entropy asked for."""

    steps: tuple[int, ...]
    temperatures: tuple[float | int, ...] = (1.0,)
    align: float | int | Literal["corpus", "own"] | None = None
    """Entropy in nats, or that of the real text. own: at no common entropy, but as each model is to be drawn."""
    text: RealText | None = None
    """Real text to compare samples with."""
    nelbo_text: RealText | None = None
    """Real text of which the NELBO is wanted, and what masks tell of it."""
    against_perfect: RealText | None = None
    """Real text on whose noised states, and on those that the sampler visits, predictions are held against the exact
    ones (`shortfall.py`)."""
    sequences: int = 512
    """Held-out sequences for the NELBO and for recall."""
    draws: int = 1
    recall_strings: int = 0
    """Noise strings of the recall of `text` in one step; 0 if it is not wanted. Some models have none."""
    trajectories: bool = False
    likelihood: tuple[StateOrder, RealText] | None = None
    """The order of samplers under which the exact likelihood of this text is wanted, at each K and temperature."""
    mauve: tuple[Reader, RealText] | None = None
    """The network whose features are compared with those of this text, at each K and temperature, and at the entropy
    asked for."""


@dataclass(frozen=True)
class Task:
    """A piece of work with one result, which the subject remembers: to run it again costs nothing."""

    result: str
    """The field of `Evaluation` that the result belongs to."""
    name: str
    amount: int
    """Its size in the units of `Progress`, more or less."""
    run: Callable[[Progress], Any]


@dataclass(frozen=True)
class Evaluation:
    """All figures of one checkpoint."""

    label: str
    path: str
    description: str
    fingerprint: str
    judge: str | None
    drawing: dict[str, Any]
    real: RealFigures | None = None
    nelbo: Nelbo | None = None
    nats_per_token: float | None = None
    """The exact entropy of the source, beside the NELBO."""
    recalls: tuple[Recall, ...] = ()
    """Recall in one step: at temperature 1, and at that of the aligned samples of one step if there are any."""
    measurements: tuple[Measurement, ...] = ()
    aligned: tuple[Aligned, ...] = ()
    trajectories: tuple[Trajectory, ...] = ()
    mask_reading: MaskReading | None = None
    """Beside the NELBO of a model with several masks."""
    shortfalls: tuple[Shortfall, ...] = ()
    """The shortfall on states of the data, then on those of the sampler at each K and temperature."""
    likelihoods: tuple[SamplerLikelihood, ...] = ()
    """How probable held-out text is under samplers whose order follows from the state, at each K and temperature."""
    mauves: tuple[Mauve, ...] = ()
    """MAUVE of samples at each K and temperature, then at that of the aligned samples, beside real text."""
    seeds: int = 1
    """Training seeds that the figures are means of; with one, intervals are over samples."""

    @property
    def spread(self) -> str:
        """What intervals are over, in words."""
        return "over samples" if self.seeds == 1 else f"over {self.seeds} training seeds"

    def as_data(self) -> dict[str, Any]:
        """Plain data for JSON; trajectories are pictures, not figures, and are left out."""
        data = asdict(self)
        del data["trajectories"]
        if self.nelbo is not None:
            data["nelbo"] |= {"total": self.nelbo.total, "perplexity": self.nelbo.perplexity}
        if self.mask_reading is not None:
            data["mask_reading"] |= {"difference": self.mask_reading.difference, "tested": self.mask_reading.tested}
        return data


def tasks(subject: Subject, plan: Plan) -> list[Task]:
    """One for each result that is wanted, in the order in which results are wanted."""
    recalls, mauves = list(_recalls(subject, plan)), list(_aligned_mauves(subject, plan))
    found = [
        *_real_text(subject, plan),
        *_held_out_text(subject, plan),
        *_likelihoods(subject, plan),
        *_mauves(subject, plan),
        *_shortfalls(subject, plan),
        *recalls[:1],
        *_samples(subject, plan),
        *recalls[1:],  # at a temperature that the samples tell, as the next are
        *mauves,
    ]
    return [replace(task, name=f"{subject.label}: {task.name}") for task in found]


def run_tasks(
    work: Sequence[Task],
    ended: Callable[[int, Task, int], None],
    begun: Callable[[int, Task], Progress] = lambda number, task: ignore,
    kept: bool = True,
) -> None:
    """Run the tasks one after the other, numbered from 1 on.

    `begun(number, task)` gives the progress that the task reports to; `ended(number, task, amount)` is called with what
    all tasks so far amount to.

    If results are `kept` when the process ends, a request to stop waits for the task at hand.
    """
    finished = 0
    with measuring_listener() if kept else nullcontext() as listener:
        for number, task in enumerate(work, 1):
            task.run(begun(number, task))
            finished += task.amount
            ended(number, task, finished)
            if listener is not None:
                leave_if_asked(listener, number, len(work))


def collect(subject: Subject, plan: Plan) -> Evaluation:
    """The results of all tasks; those that were not run are run now."""
    found: dict[str, list[Any]] = defaultdict(list)
    for task in tasks(subject, plan):
        found[task.result].append(task.run(ignore))
    found["trajectories"] = [picture for picture in found["trajectories"] if picture.times]
    results: dict[str, Any] = {name: one[0] if name in _SINGLE else tuple(one) for name, one in found.items()}
    return Evaluation(
        label=subject.label,
        path=subject.path,
        description=subject.description,
        fingerprint=subject.fingerprint,
        judge=subject.judge.name if subject.judge is not None else None,
        drawing={**asdict(subject.drawing), "length": subject.length},
        nats_per_token=plan.nelbo_text.nats_per_token if plan.nelbo_text is not None else None,
        **results,
    )


def _real_text(subject: Subject, plan: Plan) -> Iterator[Task]:
    if plan.text is not None:
        yield Task("real", "real text", 256, partial(subject.real, plan.text))


def _held_out_text(subject: Subject, plan: Plan) -> Iterator[Task]:
    """The NELBO, and what masks tell of the text if the model has several."""
    if plan.nelbo_text is None:
        return
    asked = (plan.nelbo_text, plan.sequences, plan.draws)
    amount = plan.sequences * plan.draws
    name = "NELBO" if subject.model.process is not None else "negative log-likelihood"
    yield Task("nelbo", name, amount, partial(subject.nelbo, *asked))
    if reads_masks(subject.model):
        yield Task("mask_reading", "what masks tell", 2 * amount, partial(subject.mask_reading, *asked))


def _likelihoods(subject: Subject, plan: Plan) -> Iterator[Task]:
    if plan.likelihood is None:
        return
    order, text = plan.likelihood
    for K, tau in product(plan.steps, plan.temperatures):
        run = partial(subject.likelihood, text, order, K, tau, plan.sequences)
        yield Task("likelihoods", f"likelihood, K = {K}, tau = {tau:g}", plan.sequences * K, run)


def _mauves(subject: Subject, plan: Plan) -> Iterator[Task]:
    if plan.mauve is None:
        return
    for K, tau in product(plan.steps, plan.temperatures):
        amount = subject.drawing.num * (subject.calls(K) + 3)
        yield Task("mauves", f"MAUVE, K = {K}, tau = {tau:g}", amount, partial(subject.mauve, *plan.mauve, K, tau))


def _aligned_mauves(subject: Subject, plan: Plan) -> Iterator[Task]:
    """At the temperatures of aligned samples; where none are matched, they are among the others already."""
    if plan.mauve is None or plan.align in (None, "own"):
        return
    reader, text = plan.mauve

    def at(steps: int, progress: Progress) -> Mauve:
        tau = _aligned(subject, plan, steps).measurement.temperature
        return subject.mauve(reader, text, steps, tau, progress)

    for K in plan.steps:
        amount = subject.drawing.num * (subject.calls(K) + 3)
        yield Task("mauves", f"MAUVE, K = {K}, aligned", amount, partial(at, K))


def _shortfalls(subject: Subject, plan: Plan) -> Iterator[Task]:
    """Tasks for the shortfall on states of the data, then on those of the sampler."""
    text = plan.against_perfect
    if text is None:
        return
    run = partial(subject.shortfall_on_data, text, plan.sequences)
    yield Task("shortfalls", "against perfect", plan.sequences, run)
    for K, tau in product(plan.steps, plan.temperatures):
        run = partial(subject.shortfall_of_sampler, K, tau)
        yield Task("shortfalls", f"against perfect, K = {K}, tau = {tau:g}", subject.drawing.num * K, run)


def _samples(subject: Subject, plan: Plan) -> Iterator[Task]:
    """At each K: a measurement at every temperature, the aligned one, and a picture."""
    num = subject.drawing.num
    for K in plan.steps:
        calls = subject.calls(K)
        for tau in plan.temperatures:
            run = partial(subject.measured, K, tau)
            yield Task("measurements", f"K = {K}, tau = {tau:g}", num * (calls + 1), run)
        if plan.align is not None:
            amount = num * (calls + 1) if plan.align == "own" else num * (calls * USUAL_DRAWS + 1)
            yield Task("aligned", f"K = {K}, aligned", amount, partial(_aligned, subject, plan, K))
        if plan.trajectories:
            yield Task("trajectories", f"K = {K}, trajectory", calls, lambda _, K=K: _picture(subject, plan, K))


def _recalls(subject: Subject, plan: Plan) -> Iterator[Task]:
    """At temperature 1, then at that of the aligned samples of one step; none if the model has none."""
    text, strings = plan.text, plan.recall_strings
    if text is None or strings == 0 or not has_recall(subject.model):
        return

    def at(temperature: float | int, progress: Progress) -> Recall:
        return subject.recall(text, plan.sequences, strings, temperature, progress)

    def aligned(progress: Progress) -> Recall:
        return at(_aligned(subject, plan, 1).measurement.temperature, progress)

    yield Task("recalls", "recall", strings, partial(at, 1.0))
    if plan.align not in (None, "own") and 1 in plan.steps:
        yield Task("recalls", "recall, aligned", strings, aligned)


def _aligned(subject: Subject, plan: Plan, steps: int, progress: Progress = ignore) -> Aligned:
    """At the entropy that the plan wants, or as the model is to be drawn."""
    if plan.align == "own":
        return Aligned(None, True, (), subject.measured(steps, subject.temperature, progress))
    return subject.aligned(steps, target(subject, plan), progress)


def target(subject: Subject, plan: Plan) -> float:
    """The entropy to align to, in nats."""
    if plan.align != "corpus":
        assert isinstance(plan.align, int | float)
        return float(plan.align)
    if plan.text is None:
        raise ValueError("aligning to the entropy of the corpus needs real text: give the data, or a number of nats")
    return subject.real(plan.text).entropy.value


def _picture(subject: Subject, plan: Plan, steps: int) -> Trajectory:
    """At the temperature nearest to one, as samples are shown; an empty one if the model has no trajectory."""
    temperature = float(min(plan.temperatures, key=lambda tau: abs(tau - 1)))
    empty = Trajectory(steps, (), (), (), False)
    return subject.remembered_picture(
        Trajectory,
        steps,
        temperature,
        lambda: trajectory(subject.model, steps, subject.drawing, temperature) or empty,
    )
