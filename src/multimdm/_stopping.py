"""Asked to stop, work is brought to a place from which the same command can go on. Imports no torch."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

ASKING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))
_SAME = 1.0
"""Seconds within which signals are one: a scheduler signals all processes, and a launcher hands its own signal on."""


class ToldInterrupt(KeyboardInterrupt):
    """Ctrl-C, when work was brought to its place and a sentence has said so."""


class TerminatedError(BaseException):
    """SIGTERM, where nothing is waited for: what is half-written is taken away on the way out."""


class Listener:
    """Hears requests to stop while work lasts; the second one stops at once. Python tells the main thread alone."""

    def __init__(self, first: str) -> None:
        """`first`: what is done before the program leaves, as in "the step is finished and saved"."""
        self._words = f"\nstopping: {first} first; a second signal stops at once\n".encode()
        self.asked = False
        """Whether this process was asked to stop."""
        self._number: int = signal.SIGTERM  # unless it hears another: of several ranks one alone may hear
        self._when = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Listener":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._hear) for number in ASKING}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def leaving(self, kept: str | None = None) -> BaseException:
        """What ends the program, with 128 plus the number of the signal, as a shell would tell it.

        `kept` is what will not be done again, as in "kept 3 of 12 measurements"; others than the main rank say nothing.
        """
        if kept is not None:
            print(f"{kept}; the same command goes on", file=sys.stderr, flush=True)
        return ToldInterrupt() if self._number == signal.SIGINT else SystemExit(128 + self._number)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.asked:
            self._when = now
            self._number = number
            self.asked = True
            if os.environ.get("RANK", "0") == "0":
                os.write(2, self._words)  # a handler may interrupt any other way to write
        elif now - self._when > _SAME:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends this block as Ctrl-C does, with everything put away; a second one ends the process at once.

    Who listens within the block, listens instead.
    """
    alone = threading.current_thread() is not threading.main_thread()
    if alone or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # someone else has decided what it means
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise TerminatedError

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
