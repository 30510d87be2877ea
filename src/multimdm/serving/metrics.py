"""Counts of what the server does, in the text format that Prometheus reads."""

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_HELP = {
    "multimdm_requests_total": "Answers by path and status.",
    "multimdm_sequences_total": "Sequences finished.",
    "multimdm_tokens_total": "Tokens made.",
    "multimdm_network_calls_total": "Network calls.",
    "multimdm_network_rows_total": "Sequences in network calls: divided by the calls, how many shared one.",
    "multimdm_cancelled_total": "Requests whose clients left.",
    "multimdm_rejected_total": "Requests that found the queue full.",
    "multimdm_failed_total": "Requests that failed inside the server.",
}


class _Key(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]


class Metrics:
    """Counters, one histogram of seconds, and gauges that are read when asked for."""

    def __init__(self) -> None:
        self._counts: defaultdict[_Key, int] = defaultdict(int)
        self._buckets, self._seconds = [0] * (len(_BOUNDS) + 1), 0.0
        self._lock = threading.Lock()
        self.gauges: dict[str, tuple[str, Callable[[], int]]] = {}
        """Name -> what it is, and how to read it."""

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        """Count."""
        with self._lock:
            self._counts[_Key(name, tuple(sorted(labels.items())))] += amount

    def observe_seconds(self, seconds: float) -> None:
        """How long an answer took, from its arrival."""
        with self._lock:
            self._buckets[sum(seconds > bound for bound in _BOUNDS)] += 1
            self._seconds += seconds

    def value(self, name: str) -> int:
        """The sum over labels."""
        with self._lock:
            return sum(count for key, count in self._counts.items() if key.name == name)

    def render(self) -> str:
        """All of it."""
        with self._lock:
            counts, buckets, seconds = dict(self._counts), list(self._buckets), self._seconds
        lines = []
        for name, text in _HELP.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
            own = sorted((key.labels, count) for key, count in counts.items() if key.name == name)
            lines += [f"{name}{_braces(labels)} {count}" for labels, count in own or [((), 0)]]
        for name, (text, read) in self.gauges.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name} {read()}"]
        name = "multimdm_answer_seconds"
        lines += [f"# HELP {name} From a request's arrival to the end of its work.", f"# TYPE {name} histogram"]
        running = 0
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), buckets, strict=True):
            running += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {running}')
        return "\n".join([*lines, f"{name}_sum {seconds:g}", f"{name}_count {running}", ""])


def _braces(labels: tuple[tuple[str, str], ...]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""
