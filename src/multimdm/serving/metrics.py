"""Counts of what the server does, in the text format that Prometheus reads (version 0.0.4)."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""By which Prometheus knows the format."""

_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_REQUESTS = "multimdm_requests_total"
_HELP = {
    _REQUESTS: "Answers by path and status.",
    "multimdm_sequences_total": "Sequences finished.",
    "multimdm_tokens_total": "Tokens made.",
    "multimdm_network_calls_total": "Network calls.",
    "multimdm_network_rows_total": "Sequences in network calls: divided by the calls, how many shared one.",
    "multimdm_cancelled_total": "Requests whose clients left.",
    "multimdm_rejected_total": "Requests that found the queue full.",
    "multimdm_failed_total": "Requests that failed inside the server.",
}
_LABELLED = frozenset({_REQUESTS})
"""Counters that have labels have no series until something is counted: one without labels would vanish again."""

Labels = tuple[tuple[str, str], ...]


class _Key(NamedTuple):
    name: str
    labels: Labels


class Metrics:
    """Counters, one histogram of seconds, facts that stay, and gauges that are read when asked for."""

    def __init__(self) -> None:
        self._counts: defaultdict[_Key, int] = defaultdict(int)
        self._buckets, self._seconds = [0] * (len(_BOUNDS) + 1), 0.0
        self._lock = threading.Lock()
        self._begun = time.time()
        self._facts: dict[str, tuple[str, list[Labels]]] = {}
        self.gauges: dict[str, tuple[str, Callable[[], int]]] = {}
        """Name -> what it is, and how to read it."""

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        """Count."""
        with self._lock:
            self._counts[_Key(name, tuple(sorted(labels.items())))] += amount

    def tell(self, name: str, text: str, **labels: str) -> None:
        """A fact that does not change, in the labels of a gauge that is 1; to be told before anyone asks."""
        self._facts.setdefault(name, (text, []))[1].append(tuple(sorted(labels.items())))

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
        lines: list[str] = []
        for name, text in _HELP.items():
            own = sorted((key.labels, count) for key, count in counts.items() if key.name == name)
            lines += _family(name, "counter", text, own or ([] if name in _LABELLED else [((), 0)]))
        for name, (text, read) in self.gauges.items():
            lines += _family(name, "gauge", text, [((), read())])
        for name, (text, facts) in self._facts.items():
            lines += _family(name, "gauge", text, [(labels, 1) for labels in facts])
        start = "multimdm_start_time_seconds"
        lines += _family(start, "gauge", "When the server began, in seconds since 1970.", [((), self._begun)])
        return "\n".join([*lines, *_histogram(buckets, seconds), ""])


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[Labels, float | int]]) -> Iterator[str]:
    """What it is, then its series; a family without series only says that it is there."""
    yield f"# HELP {name} {_escaped(text, quotes=False)}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        yield f"{name}{_braces(labels)} {value!r}"  # all digits: a sum that is rounded stands still in the end


def _histogram(buckets: list[int], seconds: float) -> Iterator[str]:
    """Buckets are counted up to their bounds, as Prometheus has them."""
    name, running = "multimdm_answer_seconds", 0
    yield from _family(name, "histogram", "From a request's arrival to the end of its work.", [])
    for bound, count in zip((*map(str, _BOUNDS), "+Inf"), buckets, strict=True):
        running += count
        yield f"{name}_bucket{_braces((('le', bound),))} {running}"
    yield f"{name}_sum {seconds!r}"
    yield f"{name}_count {running}"


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}" if labels else ""


def _escaped(text: str, quotes: bool = True) -> str:
    """Backslashes and ends of lines, and within a label's value quotation marks."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text
