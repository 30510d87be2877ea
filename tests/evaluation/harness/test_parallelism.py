"""Accuracy under parallelism, by values computed by hand."""

import math

import pytest

from multimdm.evaluation.harness.scores import Score, Scored, accuracy_under_parallelism, under_parallelism


def test_without_loss_it_is_the_area_below_the_curve():
    assert accuracy_under_parallelism([(1.0, 80.0), (2.0, 80.0), (4.0, 80.0)], 80) == pytest.approx(320)
    assert accuracy_under_parallelism([(2.0, 60.0)], 60) == 120, "one point: a box"


def test_by_hand():
    """Points (1, 80), (2, 78), (4, 76) and the best 80.

    w(80) 80 = 80; w(78) 78 = 78 exp(-0.075) = 72.364..; w(76) 76 = 76 exp(-0.15) = 65.413..;
    80 + (80 + 72.364) / 2 + 2 (72.364 + 65.413) / 2 = 293.959..
    """
    assert accuracy_under_parallelism([(1.0, 80.0), (2.0, 78.0), (4.0, 76.0)], 80) == pytest.approx(293.959, abs=1e-3)
    first, second = 40 * math.exp(-1.5), 38 * math.exp(-3 * (1 - 38 / 80))
    area = accuracy_under_parallelism([(1.0, 40.0), (3.0, 38.0)], 80)
    assert area == pytest.approx(40 + first + second), "the first box has no weight, whoever is the best"


def test_what_falls_by_more_than_five_points_does_not_count():
    kept = accuracy_under_parallelism([(1.0, 70.0), (2.0, 65.0)], 70)
    assert kept > accuracy_under_parallelism([(1.0, 70.0)], 70)
    assert accuracy_under_parallelism([(1.0, 70.0), (2.0, 65.0), (8.0, 64.9)], 70) == kept
    assert accuracy_under_parallelism([(1.0, 70.0), (8.0, 20.0)], 70) == 70
    bridged = accuracy_under_parallelism([(1.0, 70.0), (2.0, 10.0), (3.0, 70.0)], 70)
    assert bridged == pytest.approx(210), "a curve goes on from the point before"


def test_points_are_taken_from_the_slowest():
    assert accuracy_under_parallelism([(2.0, 78.0), (1.0, 80.0)], 80) == pytest.approx(
        80 + (80 + 78 * math.exp(-0.075)) / 2
    )


def test_nothing_right_is_nothing():
    assert accuracy_under_parallelism([(1.0, 0.0), (2.0, 0.0)], 0) == 0
    with pytest.raises(ValueError, match="points must hold at least one pair"):
        accuracy_under_parallelism([], 50)


def test_the_best_is_that_of_the_task():
    def scored(task: str, model: str, tps: int, right: int) -> Scored:
        return Scored(task, model, tps, Score.of([True] * right + [False] * (100 - right), 8, 8 // tps, 800))

    scores = [
        scored("a", "one", 1, 50),
        scored("a", "one", 2, 50),
        scored("a", "two", 1, 80),
        scored("b", "one", 1, 90),
    ]
    areas = under_parallelism(scores)
    assert areas == {("a", "one"): pytest.approx(50 + 50 * math.exp(-3 * 30 / 80))}, "90 is another task's"
