"""Scores on tasks, with what they must not be read without: the number of items, an interval, and tokens per call."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from multimdm._checks import require
from multimdm.evaluation.bootstrap import Bootstrap, Estimate

PENALTY = 3.0
"""alpha of d3LLM: how much a loss of accuracy counts."""
TOLERANCE = 5.0
"""Points of per cent that accuracy may lie below that of the slowest setting; what lies lower is left out."""


@dataclass(frozen=True)
class Score:
    """The share of items that a model answers rightly."""

    share: Estimate
    """The share with Wilson's interval: items are right or wrong, each independently of the others."""
    right: int
    items: int
    gen_length: int
    """New tokens per answer."""
    calls: int
    """Network calls per answer."""
    tokens: int
    """Tokens of all answers together, as they are judged: up to the end of text or a stop word."""

    @classmethod
    def of(cls, flags: Sequence[bool], gen_length: int, calls: int, tokens: int) -> "Score":
        """The scores, from what became of each item."""
        share = Bootstrap(len(flags)).share(torch.tensor(flags, dtype=torch.bool))
        return cls(share, sum(flags), len(flags), gen_length, calls, tokens)

    @property
    def tokens_per_forward(self) -> float:
        """Tokens of answers per network call: at most those per step, since what follows an answer is made as well."""
        return self.tokens / (self.items * self.calls)


@dataclass(frozen=True)
class Scored:
    """A score and what it is of."""

    task: str
    """What tables call the task."""
    model: str
    tps: int
    """Tokens per step."""
    score: Score


def under_parallelism(scores: Sequence[Scored]) -> dict[tuple[str, str], float]:
    """Accuracy under parallelism by task and model, where there are at least two numbers of tokens per step.

    Accuracies are weighed against the best of the task among these scores.
    """
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    best: dict[str, float] = {}
    for one in scores:
        accuracy = 100 * one.score.share.value
        points.setdefault((one.task, one.model), []).append((one.score.tokens_per_forward, accuracy))
        best[one.task] = max(accuracy, best.get(one.task, 0.0))
    return {
        (task, model): accuracy_under_parallelism(found, best[task])
        for (task, model), found in points.items()
        if len(found) > 1
    }


def accuracy_under_parallelism(points: Sequence[tuple[float, float]], best: float | int) -> float:
    """rho_1 y_1 + sum_i (rho_i - rho_{i-1}) (w(y_i) y_i + w(y_{i-1}) y_{i-1}) / 2, where y_i >= y_1 - 5.

    rho_i are tokens per forward, from the fewest up, y_i accuracies in per cent, w(y) = min(exp(3 (y / best - 1)), 1),
    and `best` the highest accuracy that anyone has on the task: the area below the curve, where lost accuracy counts
    twice. It is AUP of d3LLM (arXiv 2601.07568, and hao-ai-lab/d3LLM).
    """
    require(len(points) > 0, "points must hold at least one pair of tokens per forward and accuracy; got none")
    ordered = sorted(points)
    slowest, accuracy = ordered[0]
    kept = [(rho, y) for rho, y in ordered if y >= accuracy - TOLERANCE]
    area = slowest * accuracy
    for (rho, y), (next_rho, next_y) in pairwise(kept):
        area += (next_rho - rho) * (_weighted(y, best) + _weighted(next_y, best)) / 2
    return area


def _weighted(y: float, best: float | int) -> float:
    """w(y) y."""
    return 0.0 if y == 0 else y * min(math.exp(PENALTY * (y / best - 1)), 1.0)
