"""What `evaluate` and `pareto` share: options of sampling, the opening of checkpoints, and progress."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from multimdm.evaluation.settings import Drawing
from multimdm.samplers.settings import Sampling

if TYPE_CHECKING:
    from multimdm.evaluation.plan import Task
    from multimdm.evaluation.real_text import RealText
    from multimdm.evaluation.store import Store
    from multimdm.evaluation.subject import Subject

WITHOUT = "none"
"""The name of no judge, and of no entropy."""


@dataclass(frozen=True)
class DrawingOptions:
    """How samples are drawn."""

    num: int = 128
    """Samples per measurement."""
    length: int | None = None
    """Tokens of each; the longest that the network is made for unless given."""
    seed: int = 0
    """The same for all measurements."""
    batch_size: int = 64
    """Sequences that go through the network together; changes no result."""
    grid: Literal["uniform", "cosine"] = "uniform"
    """Times of the steps."""
    top_p: float = 1.0
    """Draw clean tokens from the fewest most probable ones that hold this share of the probability."""
    top_k: int | None = None
    """Draw clean tokens from this many most probable ones."""
    greedy_last: bool = False
    """Take the most probable token in the last step."""
    corrector: float = 0.0
    """Share of visible tokens that every step masks again and predicts anew."""
    order: Literal["ancestral", "confidence"] = "ancestral"
    """Reveal at random, as the process says, or the most confident positions first."""

    def drawing(self) -> Drawing:
        """Checked."""
        law = Sampling(
            top_p=self.top_p,
            top_k=self.top_k,
            greedy_last=self.greedy_last,
            grid=self.grid,
            corrector=self.corrector,
            order=self.order,
        )
        drawing = Drawing(self.num, self.length, self.seed, self.batch_size, law)
        drawing.check()
        return drawing


def check_grid(drawing: Drawing, steps: Sequence[int], temperatures: Sequence[float]) -> None:
    """Refuse numbers of steps and temperatures that make no sense, or occur twice."""
    for name, values in (("steps", steps), ("temperatures", temperatures)):
        if len(set(values)) != len(values):
            raise ValueError(f"--{name} must be different numbers; got {' '.join(f'{value:g}' for value in values)}")
    for K in steps:
        for tau in temperatures:
            drawing.sampling(K, tau)


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


def open_subject(path: str, label: str | None, judge: str | None, drawing: Drawing, store: "Store") -> "Subject":
    """A checkpoint with its judge; whatever cannot be found is an error now, before any sampling."""
    from multimdm.evaluation.judges import make_judge
    from multimdm.evaluation.subject import Subject
    from multimdm.evaluation.tales_models import speaks_tales

    subject = Subject.open(path, label, drawing, store)
    length = subject.length  # checks it
    if judge is None and speaks_tales(subject.model):
        judge = "tales"
    if judge is None:
        raise ValueError(
            f"--judge is needed for GenPPL, since {path} is not a model of Tales: a causal language model (directory, "
            f"Hub name or .gguf file), an autoregressive checkpoint of ours, or {WITHOUT} to go without GenPPL"
        )
    return subject if judge == WITHOUT else replace(subject, judge=make_judge(judge, subject.model, length))


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


def carry_out(tasks: Sequence["Task"]) -> None:
    """Run the tasks: with a bar on a terminal, with a line for each elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = (
        TextColumn("{task.fields[count]}"),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    total, finished, start = sum(task.amount for task in tasks), 0, time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task("", total=total, count="")
        for number, task in enumerate(tasks, 1):
            bar.update(line, description=task.name, count=f"{number}/{len(tasks)}")
            task.run(lambda done: bar.advance(line, done))
            # What a task really takes is not known before: an alignment may try more or fewer temperatures.
            finished += task.amount
            bar.update(line, completed=finished)
            if not console.is_terminal:
                left = (time.monotonic() - start) * (total - finished) / finished
                console.print(f"{number}/{len(tasks)}  {task.name}  about {left:.0f} s left", markup=False)
