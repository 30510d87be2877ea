"""What is reported of the steps since the last report."""

from collections import defaultdict


class Window:
    """Means over the steps since the last report."""

    def __init__(self) -> None:
        self._seconds, self._steps, self._tokens = 0.0, 0, 0
        self._sums: dict[str, float] = defaultdict(float)

    def add(self, numbers: dict[str, float], tokens: int, seconds: float) -> None:
        self._steps, self._tokens, self._seconds = self._steps + 1, self._tokens + tokens, self._seconds + seconds
        for name, value in numbers.items():
            self._sums[name] += value

    def means(self) -> dict[str, float]:
        means = {name: value / self._steps for name, value in self._sums.items()}
        return {**means, "tokens_per_second": self._tokens / self._seconds}
