"""Measure the memory of a piece of work."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path

Make = Callable[[], Callable[[], object]]
"""Makes the work; a function of a module, since it is called in another process."""


def peak_megabytes(make: Make) -> float:
    """How far the peak of resident memory rises during the work, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_grow, args=(make, there))
    process.start()
    result = here.recv()
    process.join()
    return result


def _grow(make: Make, pipe) -> None:
    work = make()
    work()  # code and tables that are loaded once
    Path("/proc/self/clear_refs").write_text("5")  # the mark starts anew
    before = _high_water()
    work()
    pipe.send(_high_water() - before)


def _high_water() -> float:
    """The largest resident size so far in megabytes (getrusage would count the parent's)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise OSError("memory is measured on Linux only")
