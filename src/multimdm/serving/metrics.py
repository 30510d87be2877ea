"""What the server counts, in the text format that Prometheus reads (version 0.0.4)."""

import time
from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

__all__ = ["CONTENT_TYPE", "Metrics"]

_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_COUNTERS = {
    "multimdm_sequences_total": "Sequences finished.",
    "multimdm_tokens_total": "Tokens made.",
    "multimdm_network_calls_total": "Network calls.",
    "multimdm_network_rows_total": "Sequences in network calls: divided by the calls, how many shared one.",
    "multimdm_cancelled_total": "Requests whose clients left.",
    "multimdm_rejected_total": "Requests that found the queue full.",
    "multimdm_failed_total": "Requests that failed inside the server.",
}

# Of every counter and histogram the library would also tell when it was made; the server's start says the same once.
disable_created_metrics()


class Metrics:
    """The metrics of one server. They have a registry of their own, since a process may run several servers."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "multimdm_requests_total", "Answers by path and status.", ("path", "status"), registry=self._registry
        )
        self._counters = {name: Counter(name, text, registry=self._registry) for name, text in _COUNTERS.items()}
        self._seconds = Histogram(
            "multimdm_answer_seconds",
            "From a request's arrival to the end of its work.",
            buckets=_BOUNDS,
            registry=self._registry,
        )
        begun = time.time()
        self.gauge("multimdm_start_time_seconds", "When the server began, in seconds since 1970.", lambda: begun)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a value that is read whenever someone asks for it."""
        Gauge(name, text, registry=self._registry).set_function(read)

    def info(self, name: str, text: str, facts: Sequence[Mapping[str, str]]) -> None:
        """Add facts that do not change, each in the labels of a gauge that is 1."""
        gauge = Gauge(name, text, tuple(facts[0]), registry=self._registry)
        for labels in facts:
            gauge.labels(**labels).set(1)

    def add(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        self._counters[name].inc(amount)

    def add_answer(self, path: str, status: int) -> None:
        """Count an answer."""
        self._requests.labels(path, str(status)).inc()

    def observe_seconds(self, seconds: float) -> None:
        """Record how long an answer took, from its arrival."""
        self._seconds.observe(seconds)

    def value(self, name: str) -> float:
        """The value of a metric, summed over its labels."""
        samples = (sample for metric in self._registry.collect() for sample in metric.samples)
        return sum(sample.value for sample in samples if sample.name == name)

    def render(self) -> bytes:
        """All metrics, in the text format."""
        return generate_latest(self._registry)
