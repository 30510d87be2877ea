"""Progress of a run: a live line on a terminal, plain lines elsewhere."""

import time
from typing import Any, Protocol, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from multimdm._inert import inert

SECONDS_BETWEEN_LINES = 10.0
"""Where there is no terminal."""
FEW = 4
"""Steps after which the time left is told; the first is not counted, since it warms up."""


@runtime_checkable
class Watcher(Protocol):
    """Who is told how a run goes on."""

    def advance(self, step: int) -> None:
        """Show that so many steps are done."""
        ...

    def show(self, step: int, numbers: dict[str, Any]) -> None:
        """Show new numbers."""
        ...

    def say(self, text: str) -> None:
        """Print a line that stays."""
        ...

    def close(self) -> None:
        """The run has ended, or was stopped."""
        ...


class Display:
    """What the person at the terminal sees; silent on all ranks but the main one."""

    def __init__(self, name: str, step: int, steps: int, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, soft_wrap=True, highlight=False)
        self._name, self._first, self._steps = name, step, steps
        self._start = self._last_line = self._warm = time.monotonic()
        self._progress: Progress | None = None
        if self._console.is_terminal and not quiet:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[numbers]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self._progress = Progress(*columns, console=self._console)
            self._task = self._progress.add_task(inert(name), total=steps, completed=step, numbers="")
            self._progress.start()

    def advance(self, step: int) -> None:
        """Show that so many steps are done."""
        if self._progress is not None:
            self._progress.update(self._task, completed=step)
        if step == self._first + 1:
            self._warm = time.monotonic()
        if step == self._first + FEW and step < self._steps:
            seconds = (time.monotonic() - self._warm) / (FEW - 1)
            left = clock(seconds * (self._steps - step))
            self.say(f"{self._name}: {seconds:.3g} s per step, about {left} left for {self._steps - step:,} steps")

    def show(self, step: int, numbers: dict[str, Any]) -> None:
        """Show new numbers."""
        text = one_line(numbers)
        if self._progress is not None:
            self._progress.update(self._task, completed=step, numbers=text)
            return
        now = time.monotonic()
        if now - self._last_line >= SECONDS_BETWEEN_LINES or step == self._steps:
            self._last_line = now
            left = (now - self._start) / max(1, step - self._first) * (self._steps - step)
            self.say(f"{self._name}  {step:,}/{self._steps:,}  {text}  {clock(left)} left")

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(inert(text), markup=False)

    def close(self) -> None:
        """Give the terminal back."""
        if self._progress is not None:
            self._progress.stop()


def one_line(numbers: dict[str, Any]) -> str:
    """The loss, its terms and the speed."""
    parts = [f"loss {numbers['loss']:.4f}"]
    if numbers.get("identification"):
        parts.append(f"= {numbers['reconstruction']:.4f} + {numbers['identification']:.4f}")
    parts.append(f"{numbers['tokens_per_second']:,.0f} tokens/s")
    return "  ".join(parts)


def clock(seconds: float) -> str:
    """A time in hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
