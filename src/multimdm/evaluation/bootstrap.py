"""Confidence intervals over samples: how much a figure would change with other samples from the same model."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int64, Num
from torch import Tensor

LEVEL = 0.95
"""The confidence of all intervals."""
_RESAMPLES = 1000
_ENTRIES = 2**22
"""Weights that are held at once."""


@dataclass(frozen=True)
class Estimate:
    """A figure and its confidence interval; a single sample tells nothing of its error, so it has none."""

    value: float
    low: float | None = None
    high: float | None = None

    def contains(self, value: float | int) -> bool:
        """Whether the interval has the value; never if there is none."""
        return self.low is not None and self.high is not None and self.low <= value <= self.high

    def overlaps(self, other: "Estimate") -> bool:
        """Whether the intervals have a value in common; without intervals nothing can be told apart."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return True
        return self.low <= other.high and other.low <= self.high

    @property
    def width(self) -> float:
        """The width of the interval; zero if there is none."""
        return 0.0 if self.low is None or self.high is None else self.high - self.low


class Bootstrap:
    """One set of resamples, so that all figures of a measurement are made from the same ones."""

    def __init__(self, num: int, seed: int = 0, resamples: int = _RESAMPLES) -> None:
        self._num, self._seed, self._resamples = num, seed, resamples

    def mean(self, values: Num[Tensor, " num"]) -> Estimate:
        """The mean over samples."""
        return self.ratio(values, values.new_ones(len(values)))

    def share(self, flags: Bool[Tensor, " num"]) -> Estimate:
        """The share of samples for which something holds, with Wilson's interval instead of the bootstrap's.

        Resamples of samples that all agree all agree too: none of 8 would be 0% for certain. Wilson's interval is the
        set of shares that a test would not reject. It assumes that flags are independent, which those of duplicates are
        not: for them it is an approximation.
        """
        from scipy.stats import binomtest  # takes long to import, and not every command measures

        n, hits = len(flags), int(flags.sum())
        if n < 2:
            return Estimate(hits / n)
        interval = binomtest(hits, n).proportion_ci(LEVEL, method="wilson")
        return Estimate(hits / n, float(interval.low), float(interval.high))

    def share_of_parts(self, hits: Int64[Tensor, " num"], parts: Int64[Tensor, " num"]) -> Estimate:
        """The share of parts of samples for which something holds: the bootstrap's, over samples.

        Where all parts agree, Wilson's for as many trials as there are samples with parts: parts of one sample depend
        on each other.
        """
        agree = torch.stack([hits == 0, hits == parts]).all(1)
        if not bool(agree.any()):
            return self.ratio(hits, parts)
        return self.share(agree[1].expand(int((parts > 0).sum())))

    def ratio(
        self,
        numerators: Num[Tensor, " num"],
        denominators: Num[Tensor, " num"],
        transform: Callable[[float], float] = float,
    ) -> Estimate:
        """transform(sum of numerators / sum of denominators), for an increasing `transform`.

        The interval is transformed too: percentiles of a figure are figures of percentiles.
        """
        columns = np.stack([x.double().cpu().numpy() for x in (numerators, denominators)], axis=1)
        top, bottom = columns.sum(0)
        value = transform(float(top / bottom))
        if self._num < 2:
            return Estimate(value)
        sums = np.concatenate([weights @ columns for weights in self._weights()])
        sums = sums[sums[:, 1] > 0]  # a resample may hold nothing that counts
        low, high = np.quantile(sums[:, 0] / sums[:, 1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Estimate(value, transform(float(low)), transform(float(high)))

    def pooled_entropy(self, counts: Int64[Tensor, "num V"]) -> Estimate:
        """-sum_v f_v log f_v in nats, with f_v the share of token v in all samples together.

        Fewer different samples have less of it, so resamples lie below the value; their interval is moved back to it.
        """
        table = counts[:, counts.sum(0) > 0].double().cpu().numpy()
        value = float(_entropy(table.sum(0, keepdims=True))[0])
        if self._num < 2:
            return Estimate(value)
        found = np.concatenate([_entropy(weights @ table) for weights in self._weights()])
        low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) + value - found.mean()
        return Estimate(value, float(low), float(high))

    def _weights(self) -> Iterator[np.ndarray]:
        """How often each sample occurs in each resample, in chunks [resamples, num]."""
        generator = np.random.default_rng(self._seed)
        chances = np.full(self._num, 1 / self._num)
        chunk = max(1, _ENTRIES // self._num)
        for start in range(0, self._resamples, chunk):
            yield generator.multinomial(self._num, chances, min(chunk, self._resamples - start)).astype(np.float64)


def _entropy(counts: np.ndarray) -> np.ndarray:
    """The entropy of the distribution in proportion to each row; 0 for a resample of nothing but padding."""
    shares = counts / np.maximum(counts.sum(-1, keepdims=True), 1)
    return -(shares * np.log(shares, out=np.zeros_like(shares), where=shares > 0)).sum(-1)


def perplexity(nats: float | int) -> float:
    """exp, without overflow; of a difference of nats, the ratio of perplexities."""
    return math.exp(min(nats, 700.0))
