"""Run the stages one after the other, measure what they made, and write the report. What is done is not done again."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from multimdm._files import read_json, write_text
from multimdm.evaluation.judges import Judges
from multimdm.evaluation.perfect_models import PERFECT
from multimdm.evaluation.plan import Evaluation, Plan, collect, run_tasks, tasks
from multimdm.evaluation.real_text import RealText, real_text
from multimdm.evaluation.settings import Drawing
from multimdm.evaluation.store import Store, write_json
from multimdm.evaluation.subject import Subject
from multimdm.quickstart.stages import Budget, Stage, stages
from multimdm.report.pareto_figure import save_fronts
from multimdm.report.quickstart_report import Done, Story, figures, quickstart_report
from multimdm.report.style import save
from multimdm.training.loop import train
from multimdm.training.overall import Overall, StageWatcher

_CALL = 1 / 60
"""What a network call for one story costs, beside a step of masked pretraining."""
_COMPARED = ("mdlm", "multimdm", "mdlm-distilled", "multimdm-distilled", "quantile")
_TEACHER = "ar"
_WITH_BOUND = ("mdlm-start", "mdlm", "multimdm")
"""Whose losses compare."""
_MEASURE = "measure"
_CLOCK = "seconds.json"


def run(out: Path, budget: Budget, seed: int) -> Story:
    """Everything, from wherever an earlier run was stopped."""
    out.mkdir(parents=True, exist_ok=True)
    plan = stages(budget, seed)
    measuring = _calls(budget) * _CALL
    with Overall({**{stage.name: stage.steps * stage.cost for stage in plan}, _MEASURE: measuring}) as overall:
        for stage in plan:
            with _clocked(out, stage.name):
                watcher = StageWatcher(overall, stage.name, stage.says, stage.steps)
                train(stage.job(out), out / stage.name, watcher=watcher)
        with _clocked(out, _MEASURE):
            *evaluations, perfect, autoregressive = _measure(out, plan, budget, seed, overall)
    story = _story(out, plan, evaluations, budget, seed, (perfect, autoregressive))
    _write(out, story)
    return story


def _calls(budget: Budget) -> int:
    """Network calls per story, over all models, temperatures and trials of alignments."""
    return len(_COMPARED) * budget.samples * sum(budget.steps) * (len(budget.temperatures) + 8)


def _measure(out: Path, plan: list[Stage], budget: Budget, seed: int, overall: Overall) -> list[Evaluation]:
    """The models that are compared, then their limits: the perfect masked network and the autoregressive model."""
    store, judges = Store(out / "points"), Judges()
    drawing = Drawing(num=budget.samples, seed=seed)
    opened: list[tuple[Subject, Plan]] = []

    def open_subject(path: str, label: str) -> tuple[Subject, RealText]:
        subject = Subject.open(path, label, drawing, store)
        subject = replace(subject, judge=judges.make("tales", subject.model, subject.length))
        return subject, real_text("tales", subject.model, subject.length)

    for stage in (stage for stage in plan if stage.name in _COMPARED):
        subject, text = open_subject(str(out / stage.name / "model"), stage.label)
        opened.append((subject, Plan(budget.steps, budget.temperatures, "corpus", text, trajectories=True)))
    perfect, text = open_subject(PERFECT, "perfect network")
    opened.append((perfect, Plan(budget.steps, (), "own", text)))
    autoregressive, text = open_subject(str(out / _TEACHER / "model"), "AR")
    opened.append((autoregressive, Plan(budget.steps, (), "own", text)))  # the same for every K
    work = [task for subject, plan in opened for task in tasks(subject, plan)]
    overall.begin(_MEASURE, "measuring")
    run_tasks(work, overall.done)
    return [collect(subject, plan) for subject, plan in opened]


def _story(
    out: Path,
    plan: list[Stage],
    evaluations: list[Evaluation],
    budget: Budget,
    seed: int,
    limits: tuple[Evaluation, Evaluation],
) -> Story:
    perfect, autoregressive = limits
    seconds = _seconds(out)
    done = [Done(stage.name, stage.says, stage.steps, seconds.get(stage.name, 0.0)) for stage in plan]
    says = f"{len(evaluations)} models and their limits at K = {', '.join(map(str, budget.steps))}"
    return Story(
        evaluations=evaluations,
        perfect=perfect,
        autoregressive=autoregressive,
        steps=budget.steps,
        stages=[*done, Done(_MEASURE, says, None, seconds.get(_MEASURE, 0.0))],
        trained={
            out / stage.name: 0 if stage is plan[0] else plan[0].steps for stage in plan if stage.name in _WITH_BOUND
        },
        distilled={stage.label: out / stage.name for stage in plan if "distilled" in stage.name},
        batch=budget.batch,
        seed=seed,
    )


def _write(out: Path, story: Story) -> None:
    drawn = figures(story)
    for name, (figure, _) in drawn.items():
        save(figure, out / f"{name}.png")
    save_fronts(story.evaluations, story.steps, out)
    measured = (*story.evaluations, story.perfect, story.autoregressive)
    write_json(out / "results.json", [evaluation.as_data() for evaluation in measured])
    write_text(out / "report.html", quickstart_report(story, drawn))


@contextmanager
def _clocked(out: Path, name: str) -> Iterator[None]:
    """Add what a stage takes to what earlier runs spent on it, also if it is interrupted."""
    start = time.monotonic()
    try:
        yield
    finally:
        seconds = _seconds(out)
        seconds[name] = seconds.get(name, 0.0) + time.monotonic() - start
        write_json(out / _CLOCK, seconds)


def _seconds(out: Path) -> dict[str, float]:
    return read_json(out / _CLOCK) if (out / _CLOCK).exists() else {}
