"""Work beside training: one task at a time, in order, whose errors are told and never lost."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch


def works_beside(device: torch.device) -> bool:
    """Whether files are better read and written beside the computation: a CPU that computes would gain nothing."""
    return device.type == "cuda"


class Background:
    """Writes while the GPU computes. The next task waits for the last one, so that at most one copy is in memory."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(1, "background")
        self._task: Future[object] | None = None

    def run(self, task: Callable[[], object]) -> None:
        """Begin, once the task before has ended; its error is raised here."""
        self.wait()
        self._task = self._worker.submit(task)

    def wait(self) -> None:
        """Until nothing is being done; an error of the task is raised here, once."""
        task, self._task = self._task, None
        if task is not None:
            task.result()

    def close(self) -> None:
        """End after what has begun."""
        self._worker.shutdown(wait=True)
