"""Time grids 1 = t_K > ... > t_0 = 0, written in the order in which a sampler visits them. Imports no torch."""

import math
from collections.abc import Sequence
from itertools import pairwise
from numbers import Real
from typing import Literal

Grid = Literal["uniform", "cosine"] | tuple[float | int, ...]
"""A named grid, or the times themselves."""
_MOST_STEPS = 2**20
"""The most steps: as many as the longest sequence has tokens."""


def time_grid(grid: Grid | Sequence[float | int], steps: int | None = None) -> tuple[float, ...]:
    """K + 1 times from 1 down to 0: 1 - k/K, or cos(pi k / 2K), or the ones given.

    K steps are K network calls. The cosine takes short steps near the noise, where little is known, and long ones near
    the data.
    """
    if not isinstance(grid, str):
        return _given(grid, steps)
    if grid not in ("uniform", "cosine"):
        raise ValueError(f"grid must be 'uniform', 'cosine' or a list of times from 1 down to 0; got {grid!r}")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps must be an integer of at least 1; got {steps!r}")
    if steps > _MOST_STEPS:  # the grid is written out
        raise ValueError(f"steps must be at most {_MOST_STEPS:,}; got {str(steps)[:80]}")
    if grid == "uniform":
        return tuple((steps - k) / steps for k in range(steps + 1))
    return (*(math.cos(math.pi / 2 * k / steps) for k in range(steps)), 0.0)


def _given(times: Sequence[float | int], steps: int | None) -> tuple[float, ...]:
    """The times that a user gives, checked."""
    for t in times:
        if not isinstance(t, Real) or isinstance(t, bool):
            raise ValueError(f"grid must be a list of numbers; it holds {t!r}")
    if len(times) < 2 or times[0] != 1 or times[-1] != 0 or not all(s < t for t, s in pairwise(times)):
        raise ValueError(f"grid must fall from 1 to 0, each time below the one before; got {list(times)}")
    if steps is not None and steps != len(times) - 1:
        raise ValueError(f"steps must be {len(times) - 1} for a grid of {len(times)} times, or left out; got {steps}")
    return tuple(float(t) for t in times)
