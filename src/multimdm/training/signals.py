"""A run that is asked to stop finishes its step and saves it first."""

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import Tensor

from multimdm.training.engine import Engine

_ASKING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))
_SAME = 1.0
"""Seconds within which signals are one: a scheduler signals all processes, and a launcher hands its own signal on."""
_HEARD = b"\nstopping: the step is finished and saved first; a second signal stops at once\n"


class Signals:
    """Listens for requests to stop while a run lasts. Python hands signals to the main thread alone."""

    def __init__(self) -> None:
        self.stopping = False
        """Whether all ranks are to stop after this step."""
        self._number: int | None = None
        self._when = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._hear) for number in _ASKING}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def sum(self, engine: Engine, values: Tensor) -> Tensor:
        """The sum over ranks that every step needs; a request that any rank has heard travels with it to all."""
        asked = self._number is not None
        if engine.ranks == 1:
            self.stopping = asked
            return engine.sum(values)
        sums = engine.sum(torch.cat([values, values.new_tensor([float(asked)])]))
        self.stopping = bool(sums[-1] > 0)
        return sums[:-1]

    def leaving(self) -> BaseException:
        """What ends the program, with 128 plus the number of the signal, as a shell would tell it."""
        number = signal.SIGTERM if self._number is None else self._number
        return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._number is None:
            self._number, self._when = number, now
            if os.environ.get("RANK", "0") == "0":
                os.write(2, _HEARD)  # a handler may interrupt any other way to write
        elif now - self._when > _SAME:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
