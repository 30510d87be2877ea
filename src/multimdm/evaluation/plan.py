"""What is to be measured of a checkpoint, as tasks that can be watched and taken up again, and what came of it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from multimdm.evaluation.alignment import Aligned
from multimdm.evaluation.judges.features import Reader
from multimdm.evaluation.mask_reading import MaskReading, reads_masks
from multimdm.evaluation.mauve import Mauve
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.nelbo import Nelbo
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.real_text import RealFigures, RealText
from multimdm.evaluation.recall import Recall, has_recall
from multimdm.evaluation.sampler_likelihood import SamplerLikelihood, StateOrder
from multimdm.evaluation.shortfall import Shortfall
from multimdm.evaluation.stops import leave_if_asked, measuring_listener
from multimdm.evaluation.subject import Subject
from multimdm.evaluation.trajectory import Trajectory, trajectory

_TRIALS = 7
"""Temperatures that an alignment usually tries."""


@dataclass(frozen=True)
class Plan:
    """For every K: a measurement at each temperature, and one at the entropy asked for."""

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
    """Of the NELBO, and of recall."""
    draws: int = 1
    recall_strings: int = 0
    """Noise strings of the recall of `text` in one step; 0 if it is not wanted. Some models have none."""
    trajectories: bool = False
    likelihood: tuple[StateOrder, RealText] | None = None
    """The order of samplers under which the exact likelihood of this text is wanted, at each K and temperature."""
    mauve: tuple[Reader, RealText] | None = None
    """The network whose features are compared with those of this text, at each K and temperature."""


@dataclass(frozen=True)
class Task:
    """A piece of work; its result is remembered by the subject."""

    name: str
    amount: int
    """In the units of `Progress`, more or less."""
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
    real: RealFigures | None
    nelbo: Nelbo | None
    nats_per_token: float | None
    """The exact entropy of the source, beside the NELBO."""
    recalls: tuple[Recall, ...]
    """In one step: at temperature 1, and at that of the aligned samples of one step if there are any."""
    measurements: tuple[Measurement, ...]
    aligned: tuple[Aligned, ...]
    trajectories: tuple[Trajectory, ...]
    mask_reading: MaskReading | None = None
    """Beside the NELBO of a model with several masks."""
    shortfalls: tuple[Shortfall, ...] = ()
    """On states of the data, then on those of the sampler at each K and temperature."""
    likelihoods: tuple[SamplerLikelihood, ...] = ()
    """Of held-out text under samplers whose order follows from the state, at each K and temperature."""
    mauves: tuple[Mauve, ...] = ()
    """Of samples at each K and temperature, beside real text."""
    seeds: int = 1
    """Training seeds that the figures are means of; with one, intervals are over samples."""

    @property
    def spread(self) -> str:
        """What intervals are over."""
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
    """In the order in which results are wanted."""
    num, found = subject.drawing.num, []

    def add(name: str, amount: int, run: Callable[[Progress], Any]) -> None:
        found.append(Task(f"{subject.label}: {name}", amount, run))

    if (text := plan.text) is not None:
        add("real text", 256, lambda progress: subject.real(text, progress))
    if (held_out := plan.nelbo_text) is not None:
        amount = plan.sequences * plan.draws
        name = "NELBO" if subject.model.process is not None else "negative log-likelihood"
        add(name, amount, lambda progress: subject.nelbo(held_out, plan.sequences, plan.draws, progress))
        if reads_masks(subject.model):
            add("what masks tell", 2 * amount, lambda progress: _mask_reading(subject, plan, progress))
    for likelihood in _likelihoods(subject, plan):
        add(likelihood.name, likelihood.amount, likelihood.run)
    for one in _mauves(subject, plan):
        add(one.name, one.amount, one.run)
    for shortfall in _shortfalls(subject, plan):
        add(shortfall.name, shortfall.amount, shortfall.run)
    if recalls := _recalls(subject, plan):
        add("recall", plan.recall_strings, recalls[0])
    for K in plan.steps:
        calls = subject.calls(K)
        for tau in plan.temperatures:
            add(f"K = {K}, tau = {tau:g}", num * (calls + 1), lambda p, K=K, tau=tau: subject.measured(K, tau, p))
        if plan.align is not None:
            # The one that is found is drawn again, for the judge.
            amount = num * (calls + 1) if plan.align == "own" else num * (calls * (_TRIALS + 1) + 1)
            add(f"K = {K}, aligned", amount, lambda p, K=K: _aligned(subject, plan, K, p))
        if plan.trajectories:
            add(f"K = {K}, trajectory", calls, lambda _, K=K: _picture(subject, plan, K))
    for recall in recalls[1:]:
        add("recall, aligned", plan.recall_strings, recall)
    return found


def run_tasks(work: Sequence[Task], watch: Callable[[float, str], None]) -> None:
    """One after the other; `watch` is told the share that is done and of what.

    Asked to stop, the task at hand is finished, and what is done is kept.
    """
    total, finished = sum(task.amount for task in work), 0
    with measuring_listener() as listener:
        for number, task in enumerate(work, 1):
            task.run(ignore)
            finished += task.amount
            watch(finished / total, task.name)
            leave_if_asked(listener, number, len(work))


def collect(subject: Subject, plan: Plan) -> Evaluation:
    """The results; tasks that were not run are run now."""
    held_out = plan.nelbo_text
    pictures = [_picture(subject, plan, K) for K in plan.steps] if plan.trajectories else []
    return Evaluation(
        label=subject.label,
        path=subject.path,
        description=subject.description,
        fingerprint=subject.fingerprint,
        judge=subject.judge.name if subject.judge is not None else None,
        drawing={**asdict(subject.drawing), "length": subject.length},
        real=subject.real(plan.text) if plan.text is not None else None,
        nelbo=subject.nelbo(held_out, plan.sequences, plan.draws) if held_out is not None else None,
        nats_per_token=held_out.nats_per_token if held_out is not None else None,
        recalls=tuple(recall(ignore) for recall in _recalls(subject, plan)),
        measurements=tuple(subject.measured(K, tau) for K in plan.steps for tau in plan.temperatures),
        aligned=() if plan.align is None else tuple(_aligned(subject, plan, K) for K in plan.steps),
        trajectories=tuple(picture for picture in pictures if picture.times),
        mask_reading=_mask_reading(subject, plan),
        likelihoods=tuple(likelihood.run(ignore) for likelihood in _likelihoods(subject, plan)),
        mauves=tuple(one.run(ignore) for one in _mauves(subject, plan)),
        shortfalls=tuple(shortfall.run(ignore) for shortfall in _shortfalls(subject, plan)),
    )


def _mask_reading(subject: Subject, plan: Plan, progress: Progress = ignore) -> MaskReading | None:
    """Beside the NELBO, if there is one and masks to be read."""
    if plan.nelbo_text is None or not reads_masks(subject.model):
        return None
    return subject.mask_reading(plan.nelbo_text, plan.sequences, plan.draws, progress)


def _likelihoods(subject: Subject, plan: Plan) -> list[Task]:
    """What finds them, if they are wanted."""
    if plan.likelihood is None:
        return []
    order, text = plan.likelihood
    return [
        Task(
            f"likelihood, K = {K}, tau = {tau:g}",
            plan.sequences * K,
            partial(subject.likelihood, text, order, K, tau, plan.sequences),
        )
        for K in plan.steps
        for tau in plan.temperatures
    ]


def _mauves(subject: Subject, plan: Plan) -> list[Task]:
    """What finds them, if they are wanted."""
    if plan.mauve is None:
        return []
    reader, text = plan.mauve
    return [
        Task(
            f"MAUVE, K = {K}, tau = {tau:g}",
            subject.drawing.num * (subject.calls(K) + 3),
            partial(subject.mauve, reader, text, K, tau),
        )
        for K in plan.steps
        for tau in plan.temperatures
    ]


def _shortfalls(subject: Subject, plan: Plan) -> list[Task]:
    """What finds them, if they are wanted."""
    text, num = plan.against_perfect, subject.drawing.num
    if text is None:
        return []
    found = [Task("against perfect", plan.sequences, partial(subject.shortfall_on_data, text, plan.sequences))]
    for K in plan.steps:
        for tau in plan.temperatures:
            run = partial(subject.shortfall_of_sampler, K, tau)
            found.append(Task(f"against perfect, K = {K}, tau = {tau:g}", num * K, run))
    return found


def _recalls(subject: Subject, plan: Plan) -> list[Callable[[Progress], Recall]]:
    """What finds them, as far as they are wanted and the model has any."""
    text, strings = plan.text, plan.recall_strings
    if text is None or strings == 0 or not has_recall(subject.model):
        return []

    def at(temperature: float, progress: Progress) -> Recall:
        return subject.recall(text, plan.sequences, strings, temperature, progress)

    def aligned(progress: Progress) -> Recall:
        return at(_aligned(subject, plan, 1).measurement.temperature, progress)

    matched = plan.align not in (None, "own") and 1 in plan.steps
    return [partial(at, 1.0), *([aligned] if matched else [])]


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
