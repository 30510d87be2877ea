"""Files that are read and written beside the computation of a GPU: the texts of the next step, and checkpoints."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from multimdm.data.prepared import Example

Read = Callable[[int, int], Example]
"""(first sequence, how many) -> the texts: a function of these alone, so that it does not matter when it is called."""


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


class ReadingAhead:
    """A reader that may be told what it will be asked for; texts lie in memory that a GPU copies from by itself."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._worker = ThreadPoolExecutor(1, "reading ahead")
        self._coming: dict[tuple[int, int], Future[Example]] = {}

    def __call__(self, first: int, num: int) -> Example:
        """The texts: those that are coming, else by reading them now."""
        coming = self._coming.pop((first, num), None)
        return _pinned(self._read(first, num)) if coming is None else coming.result()

    def expect(self, parts: Iterable[tuple[int, int]]) -> None:
        """Begin to read these, and forget what was expected before and not asked for."""
        self._coming = {part: self._worker.submit(self._pinned_read, *part) for part in parts}

    def close(self) -> None:
        """Stop reading."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _pinned_read(self, first: int, num: int) -> Example:
        return _pinned(self._read(first, num))


def _pinned(example: Example) -> Example:
    return Example(*(x.pin_memory() for x in example)) if torch.cuda.is_available() else example
