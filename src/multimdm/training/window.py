"""What is reported of the steps since the last report."""

from collections import defaultdict


class Window:
    """Means over the steps since the last report."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._steps, self._tokens, self._seconds = 0, 0, 0.0
        self._sums: dict[str, float] = defaultdict(float)
        self._clocks, self._began = seconds, dict(seconds)

    def add(self, numbers: dict[str, float], tokens: int, seconds: float) -> None:
        """One step."""
        self._steps, self._tokens, self._seconds = self._steps + 1, self._tokens + tokens, self._seconds + seconds
        for name, value in numbers.items():
            self._sums[name] += value

    def means(self) -> dict[str, float]:
        """Of what steps tell."""
        means = {name: value / self._steps for name, value in self._sums.items()}
        return {**means, "tokens_per_second": self._tokens / self._seconds}

    @property
    def tokens(self) -> float:
        """Per step."""
        return self._tokens / self._steps

    def seconds(self, what: str) -> float:
        """Per step: of reading data, say, or of the step itself."""
        return (self._clocks[what] - self._began.get(what, 0.0)) / self._steps
