"""Progress over several stages: how far this one is, and how long everything will still take."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from multimdm.data.inert import inert
from multimdm.training.display import SECONDS_BETWEEN_LINES, clock, one_line


class Overall:
    """A bar over stages of known relative cost; plain lines where there is no terminal."""

    def __init__(self, costs: Mapping[str, float]) -> None:
        """Name of a stage -> what it costs beside others."""
        self._costs, self._stage, self._begun = dict(costs), "", dict[str, float]()
        self._start, self._before, self._last_line = time.monotonic(), 0.0, 0.0
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._line = self._bar.add_task("", total=sum(costs.values()), numbers="", left="")

    def __enter__(self) -> "Overall":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, stage: str, text: str, share: float = 0.0) -> None:
        """The next stage; a share of it may have been done by an earlier run, and tells nothing of the speed."""
        if self._stage:
            self._begun[self._stage] = 1.0
        self._stage, self._begun[stage] = stage, share
        self._before += share * self._costs[stage]
        self._text = f"[{len(self._begun)}/{len(self._costs)}] {text}"
        self._bar.update(self._line, description=self._text, numbers="")
        if not self._console.is_terminal:
            self._console.print(self._text, markup=False)

    def skip(self, stage: str) -> None:
        """A stage that was done before, or by another process."""
        self._begun[stage] = 1.0
        self._before += self._costs[stage]

    def done(self, share: float, numbers: str = "") -> None:
        """So much of this stage is done."""
        self._begun[self._stage] = share
        completed = sum(self._costs[stage] * part for stage, part in self._begun.items())
        now = time.monotonic()
        here = completed - self._before
        left = (now - self._start) / here * (sum(self._costs.values()) - completed) if here > 0 else None
        about = f"about {clock(left)} left" if left is not None else ""
        self._bar.update(self._line, completed=completed, left=about)
        if numbers:
            self._bar.update(self._line, numbers=numbers)
        if not self._console.is_terminal and numbers and now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._console.print(f"{self._text}  {share:.0%}  {numbers}  {about} in all", markup=False)

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(inert(text), markup=False)


class StageWatcher:
    """Tells of one training run as a stage."""

    def __init__(self, overall: Overall, stage: str, text: str, steps: int) -> None:
        self._overall, self._stage, self._text, self._steps = overall, stage, text, steps
        self._begun = False

    def advance(self, step: int) -> None:
        """So many steps are done; the first time, by an earlier run."""
        if not self._begun:
            self._begun = True
            self._overall.begin(self._stage, self._text, step / self._steps)
        self._overall.done(step / self._steps)

    def show(self, step: int, numbers: dict[str, Any]) -> None:
        """New numbers."""
        self._overall.done(step / self._steps, one_line(numbers))

    def say(self, text: str) -> None:
        """What training says is in its records; here it would bury the rest."""

    def close(self) -> None:
        """The stages share one bar."""
