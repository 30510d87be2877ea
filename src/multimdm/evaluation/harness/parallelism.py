"""Accuracy under parallelism: one figure for how much accuracy is left when a network call writes many tokens.

AUP of d3LLM (arXiv 2601.07568, and hao-ai-lab/d3LLM), from pairs of tokens per forward and accuracy in per cent.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from multimdm._checks import require

PENALTY = 3.0
"""alpha of d3LLM: how much a loss of accuracy counts."""
TOLERANCE = 5.0
"""Points of per cent that accuracy may lie below that of the slowest setting; what lies lower is left out."""


def accuracy_under_parallelism(points: Sequence[tuple[float, float]], best: float | int) -> float:
    """rho_1 y_1 + sum_i (rho_i - rho_{i-1}) (w(y_i) y_i + w(y_{i-1}) y_{i-1}) / 2, where y_i >= y_1 - 5.

    rho_i are tokens per forward, from the fewest up, y_i accuracies in per cent, w(y) = min(exp(3 (y / best - 1)), 1),
    and `best` the highest accuracy that anyone has on the task: the area below the curve, where lost accuracy counts
    twice.
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
