"""What `evaluate` and `pareto` share: checks of options, the opening of checkpoints, and progress."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from multimdm._inert import inert
from multimdm.evaluation.settings import Drawing
from multimdm.models.arithmetic import Precision

if TYPE_CHECKING:
    from multimdm.evaluation.judges.base import Reader
    from multimdm.evaluation.plan import Evaluation, Plan, Task
    from multimdm.evaluation.real_text import RealText
    from multimdm.evaluation.store import Store
    from multimdm.evaluation.subject import Subject

WITHOUT = "none"
"""The name of no judge, and of no entropy."""


def check_measuring(
    drawing: Drawing, steps: Sequence[int], temperatures: Sequence[float], entropy: str | None, mauve: str | None
) -> None:
    """Refuse numbers of steps and temperatures that make no sense or occur twice, and values of --align-entropy and
    --mauve that mean nothing."""
    drawing.check()
    for name, values in (("steps", steps), ("temperatures", temperatures)):
        if len(set(values)) != len(values):
            raise ValueError(f"--{name} must be different numbers; got {' '.join(f'{value:g}' for value in values)}")
    for K in steps:
        for tau in temperatures:
            drawing.sampling(K, tau)
    parse_entropy(entropy)
    if mauve in ("tales", WITHOUT):
        raise ValueError(f"--mauve needs a network that has features; {mauve} has none")


def parse_entropy(text: str | None) -> float | Literal["corpus"] | None:
    """The value of --align-entropy."""
    if text is None or text == WITHOUT:
        return None
    if text == "corpus":
        return "corpus"
    try:
        nats = float(text)
    except ValueError:
        nats = -1.0
    if not 0 <= nats < float("inf"):
        raise ValueError(f"--align-entropy must be a number of nats, corpus, or none; got '{text}'")
    return nats


class Checkpoints:
    """Opens checkpoints with their judges; whatever cannot be found or does not fit is an error before any sampling."""

    def __init__(
        self, judge: str | None, drawing: Drawing, store: "Store", device: str, precision: Precision = "auto"
    ) -> None:
        from multimdm.evaluation.judges import Judges

        self._judge, self._drawing, self._store = judge, drawing, store
        self._device = device
        self._precision: Precision = precision
        self._judges = Judges()  # one network for all checkpoints

    def open(self, path: str, label: str | None, steps: Sequence[int]) -> "Subject":
        """A checkpoint with its judge, that can be sampled from at each K."""
        from multimdm.evaluation.subject import Subject
        from multimdm.evaluation.tales_models import speaks_tales

        subject = Subject.open(path, label, self._drawing, self._store, self._device, self._precision)
        length = subject.length  # checks it
        for K in steps:
            subject.check(K)
        judge = "tales" if self._judge is None and speaks_tales(subject.model) else self._judge
        if judge is None:
            raise ValueError(
                f"--judge is needed for GenPPL, since {path} is not a model of Tales: a causal language model "
                "(directory, Hub name or .gguf file), an autoregressive checkpoint of ours, "
                f"or {WITHOUT} to go without GenPPL"
            )
        return subject if judge == WITHOUT else replace(subject, judge=self._judges.make(judge, subject.model, length))


def open_text(data: str | None, subject: "Subject", length: int | None, why: str | None) -> "RealText | None":
    """Real text: the data named, or Tales if the model is of Tales. If there is none, an error for who needs it."""
    from multimdm.evaluation.real_text import real_text
    from multimdm.evaluation.tales_models import speaks_tales

    if data is None and speaks_tales(subject.model):
        data = "tales"
    if data is not None:
        return real_text(data, subject.model, length)
    if why is not None:
        raise ValueError(f"--data is needed for {why}: a directory that multimdm prepare wrote")
    return None


def open_reader(name: str | None, data: str | None, subject: "Subject") -> "tuple[Reader, RealText] | None":
    """The network whose features are asked for by --mauve, and the text."""
    if name is None:
        return None
    from multimdm.evaluation.judges import Judges
    from multimdm.evaluation.judges.base import Reader

    reader = Judges().make(name, subject.model, subject.length)
    assert isinstance(reader, Reader)  # all but the exact one
    text = open_text(data, subject, subject.length, "--mauve")
    assert text is not None
    return reader, text


def measured(opened: Sequence[tuple["Subject", "Plan"]], kept: bool) -> list["Evaluation"]:
    """All that is planned of these models, with a display of how far it is; `kept` if results outlive the command."""
    from multimdm.evaluation.plan import collect, tasks

    _run_with_progress([task for subject, plan in opened for task in tasks(subject, plan)], kept)
    return [collect(subject, plan) for subject, plan in opened]


def _run_with_progress(tasks: Sequence["Task"], kept: bool) -> None:
    """Run the tasks: with a bar on a terminal, with a line for each elsewhere.

    If results are kept, a request to stop waits for the task at hand, and says that the same command goes on.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from multimdm.evaluation.plan import run_tasks
    from multimdm.pipeline.ranks import current

    ranks = current()
    console = Console(stderr=True, highlight=False, soft_wrap=True, quiet=not ranks.is_main)
    columns = (
        TextColumn("{task.fields[count]}"),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    total, start = sum(task.amount for task in tasks), time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task("", total=total, count="")

        def begun(number: int, task: "Task") -> Callable[[int], None]:
            bar.update(line, description=inert(task.name), count=f"{number}/{len(tasks)}")
            return lambda done: bar.advance(line, done * ranks.ranks)

        def ended(number: int, task: "Task", finished: int) -> None:
            # What a task really takes is not known before: an alignment may try more or fewer temperatures.
            bar.update(line, completed=finished)
            if not console.is_terminal:
                left = (time.monotonic() - start) * (total - finished) / finished
                console.print(inert(f"{number}/{len(tasks)}  {task.name}  about {left:.0f} s left"), markup=False)

        run_tasks(tasks, ended, begun, kept)
