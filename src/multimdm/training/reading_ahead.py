"""Texts of the next step, read while the GPU works on this one."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from multimdm.data.prepared import Example

Read = Callable[[int, int], Example]
"""(first sequence, how many) -> the texts: a function of these alone, so that it does not matter when it is called."""


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
        """Read no more."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _pinned_read(self, first: int, num: int) -> Example:
        return _pinned(self._read(first, num))


def _pinned(example: Example) -> Example:
    return Example(*(x.pin_memory() for x in example)) if torch.cuda.is_available() else example
