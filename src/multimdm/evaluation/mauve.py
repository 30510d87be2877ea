"""MAUVE (Pillutla et al., arXiv 2102.01454): how far samples are from real text, in the features of a language model.

Features of samples P and of real text Q are put into buckets together, by k-means on their principal components. With
R = λP + (1-λ)Q the curve of (exp(-c KL(Q‖R)), exp(-c KL(P‖R))) over λ tells of both kinds of error, text that should
not be there and text that is missing, and the area under it is 1 for equal laws and near 0 for laws apart.

The figure depends on the features, on the number of texts and on chance, so it stands beside what real text has when it
is compared with other real text, and has an interval over random halves of both sets, each with buckets of its own.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multimdm._checks import require
from multimdm.evaluation.bootstrap import LEVEL, Estimate
from multimdm.evaluation.judges.base import Reader
from multimdm.evaluation.measurement import draw
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.real_text import RealText
from multimdm.evaluation.sample_statistics import text_positions
from multimdm.evaluation.settings import Drawing
from multimdm.pipeline import Model

Table = NDArray[np.float64]
_SCALE = 5.0
"""c of the curve, as published."""
_POINTS = 25
_TEXTS_PER_BUCKET = 10
_EXPLAINED = 0.9
"""Share of the variance that the principal components keep."""
_STARTS, _ROUNDS = 3, 100
_HALVES = 32


@dataclass(frozen=True)
class Mauve:
    """MAUVE of samples at K steps and temperature tau."""

    steps: int
    temperature: float
    reader: str
    """Whose features they are."""
    num: int
    value: Estimate
    real: float
    """What as many other real texts have."""


def measure_mauve(
    model: Model,
    reader: Reader,
    text: RealText,
    steps: int,
    temperature: float,
    drawing: Drawing,
    progress: Progress = ignore,
) -> Mauve:
    """Draw, read and compare with as many real texts, which are compared with as many others."""
    samples = draw(model, steps, temperature, drawing, progress).ids.cpu()
    example = text.take(2 * drawing.num)
    require(
        len(example.ids) == 2 * drawing.num,
        f"MAUVE of {drawing.num} samples needs {2 * drawing.num} real texts; there are {len(example.ids)}: lower --num",
    )
    ours = _array(reader.features(samples, text_positions(model, samples)))
    real = _array(reader.features(example.ids, example.valid))
    one, other = real[::2], real[1::2]
    return Mauve(steps, float(temperature), reader.name, drawing.num, mauve(ours, one), mauve_of(other, one, 0))


def mauve(ours: Table, real: Table, halves: int = _HALVES) -> Estimate:
    """The figure, and its interval by random halves (see `total_variation.distance`), moved to the value."""
    value = mauve_of(ours, real, 0)
    random = np.random.default_rng(0)

    def half(table: Table) -> Table:
        return table[random.permutation(len(table))[: len(table) // 2]]

    if min(len(ours), len(real)) < 4:
        return Estimate(value)
    found = np.array([mauve_of(half(ours), half(real), 1 + number) for number in range(halves)])
    low, high = value + np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) - found.mean()
    return Estimate(value, max(0.0, float(low)), min(1.0, float(high)))


def mauve_of(ours: Table, real: Table, seed: int) -> float:
    """The area, with buckets by k-means of this seed."""
    together = _components(np.concatenate([ours, real]))
    buckets = max(2, round(min(len(ours), len(real)) / _TEXTS_PER_BUCKET))
    places = _clusters(together, buckets, np.random.default_rng(seed))
    p, q = (np.bincount(part, minlength=buckets) / len(part) for part in (places[: len(ours)], places[len(ours) :]))
    return area(p, q)


def area(p: Table, q: Table) -> float:
    """Under the curve of two laws over the same buckets, which begins at (1, 0) and ends at (0, 1)."""
    shares = np.linspace(0, 1, _POINTS + 2)[1:-1, None]
    mixed = shares * p + (1 - shares) * q
    x = np.exp(-_SCALE * _divergence(q, mixed))
    y = np.exp(-_SCALE * _divergence(p, mixed))
    x, y = np.concatenate([[1.0], x, [0.0]]), np.concatenate([[0.0], y, [1.0]])
    order = np.lexsort((-y, x))
    x, y = x[order], y[order]
    return float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum())


def _divergence(p: Table, mixed: Table) -> Table:
    """KL(p ‖ R), row by row; 0 log 0 = 0."""
    ratio = np.divide(p, mixed, out=np.ones_like(mixed), where=(p > 0) & (mixed > 0))
    return (p * np.log(ratio)).sum(1)


def _array(features: Tensor) -> Table:
    """Rows of length 1: directions tell, lengths do not."""
    table = features.double().cpu().numpy()
    return table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)


def _components(table: Table) -> Table:
    """The first principal components, as many as explain the share."""
    centred = table - table.mean(0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    total = (sizes**2).sum()
    if total == 0:
        return centred[:, :1]
    kept = int(np.searchsorted(np.cumsum(sizes**2) / total, _EXPLAINED)) + 1
    return left[:, :kept] * sizes[:kept]


def _clusters(table: Table, number: int, random: np.random.Generator) -> NDArray[np.int64]:
    """The bucket of every row: k-means, the best of a few starts."""
    best, lowest = np.zeros(len(table), dtype=np.int64), np.inf
    for _ in range(_STARTS):
        centres = table[random.choice(len(table), number, replace=False)]
        places = np.full(len(table), -1)
        for _ in range(_ROUNDS):
            squares = torch.cdist(torch.from_numpy(table), torch.from_numpy(centres)).square().numpy()
            nearest = squares.argmin(1)
            if (nearest == places).all():
                break
            places = nearest
            for bucket in np.unique(places):  # an empty one keeps its centre
                centres[bucket] = table[places == bucket].mean(0)
        cost = squares[np.arange(len(table)), places].sum()
        if cost < lowest:
            best, lowest = places, cost
    return best
