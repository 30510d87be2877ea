"""Progress over several stages: how far this one is, and how long everything will still take."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from multimdm._inert import inert
from multimdm.pipeline.ranks import speaks
from multimdm.training.display import FEW, SECONDS_BETWEEN_LINES, clock, one_line


class Overall:
    """A bar over stages of known relative cost; plain lines where there is no terminal."""

    def __init__(self, costs: Mapping[str, float]) -> None:
        """Name of a stage -> what it costs beside others."""
        self._costs, self._stage, self._begun = dict(costs), "", dict[str, float]()
        self._start, self._before, self._last_line = time.monotonic(), 0.0, 0.0
        self._console = Console(stderr=True, highlight=False, soft_wrap=True, quiet=not speaks())
        columns = (
            TextColumn("{task.description}", markup=False),
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
        """Show that so much of this stage is done."""
        self._begun[self._stage] = share
        now, left = time.monotonic(), self.left
        about = f"about {clock(left)} left" if left is not None else ""
        self._bar.update(self._line, completed=self._completed, left=about)
        if numbers:
            self._bar.update(self._line, numbers=numbers)
        if not self._console.is_terminal and numbers and now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._console.print(f"{self._text}  {share:.0%}  {numbers}  {about} in all", markup=False)

    @property
    def left(self) -> float | None:
        """Seconds that all stages will still take, by the speed so far; None before anything is done."""
        here = self._completed - self._before
        if here <= 0:
            return None
        return (time.monotonic() - self._start) / here * (sum(self._costs.values()) - self._completed)

    @property
    def _completed(self) -> float:
        """How much of all stages is done, in the measure of their costs."""
        return sum(self._costs[stage] * part for stage, part in self._begun.items())

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(inert(text), markup=False)


class StageWatcher:
    """Tells of one training run as a stage; `aloud` if what it says is worth a line between those of all stages."""

    def __init__(self, overall: Overall, stage: str, text: str, steps: int, aloud: bool = False) -> None:
        self._overall, self._stage, self._text, self._steps, self._aloud = overall, stage, text, steps, aloud
        self._first: int | None = None

    def advance(self, step: int) -> None:
        """Show that so many steps are done; at the first call they are those of an earlier run."""
        if self._first is None:
            self._first = step
            self._overall.begin(self._stage, self._text, step / self._steps)
        self._overall.done(step / self._steps)
        if self._aloud and step == self._first + FEW:
            self._overall.say(f"{self._stage}: about {clock(self._overall.left or 0.0)} left for all stages")

    def show(self, step: int, numbers: dict[str, Any]) -> None:
        """Show new numbers."""
        self._overall.done(step / self._steps, one_line(numbers))

    def say(self, text: str) -> None:
        """What training says is in its records; among many stages it would bury the rest."""
        if self._aloud:
            self._overall.say(text)

    def close(self) -> None:
        """The stages share one bar."""
