import math

import pytest

from multimdm.samplers import time_grid


def test_uniform():
    assert time_grid("uniform", 1) == (1.0, 0.0)
    assert time_grid("uniform", 4) == (1.0, 0.75, 0.5, 0.25, 0.0)


def test_cosine_takes_short_steps_near_the_noise():
    times = time_grid("cosine", 3)
    assert times == pytest.approx((1.0, math.cos(math.pi / 6), 0.5, 0.0))
    assert times[0] == 1.0
    assert times[-1] == 0.0


def test_a_list_has_its_own_number_of_steps():
    assert time_grid([1, 0.3, 0]) == (1.0, 0.3, 0.0)
    assert time_grid((1.0, 0.3, 0.0), 2) == (1.0, 0.3, 0.0)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("grid", "steps", "message"),
    [
        ("uniform", 0, "steps must be an integer of at least 1; got 0"),
        ("uniform", 2.5, "steps must be an integer of at least 1; got 2.5"),
        ("uniform", None, "steps must be an integer of at least 1; got None"),
        ("linear", 4, "grid must be 'uniform', 'cosine' or a list of times from 1 down to 0; got 'linear'"),
        ([0.9, 0.5, 0.0], None, "grid must fall from 1 to 0"),
        ([1.0, 0.5], None, "grid must fall from 1 to 0"),
        ([1.0, 0.5, 0.5, 0.0], None, "each time below the one before"),
        ([1.0], None, "grid must fall from 1 to 0"),
        ([1.0, float("nan"), 0.0], None, "grid must fall from 1 to 0"),
        ([1.0, "half", 0.0], None, "grid must be a list of numbers; it holds 'half'"),
        ([1.0, 0.5, 0.0], 3, "steps must be 2 for a grid of 3 times, or left out; got 3"),
    ],
)
def test_bad_grids(grid, steps, message):
    with pytest.raises(ValueError, match=message):
        time_grid(grid, steps)
