"""Time several pieces of work side by side."""

import statistics
import time
from collections.abc import Callable


def in_turn(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each piece of work, run in turn: a busy spell of the machine then hits all of them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            if turn > 0:  # the first is to warm up
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}
