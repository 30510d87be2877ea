"""Ratios of two figures, with intervals and in words."""

import math

import numpy as np
import pytest

from multimdm.evaluation.bootstrap import Estimate
from multimdm.report.ratios import in_words, ratio_of


def test_an_interval_holds_the_ratio_as_often_as_it_says():
    """Of two independent log-normal figures with 95% intervals of their own."""
    random, covered, num = np.random.default_rng(0), 0, 4_000
    for _ in range(num):
        ours, theirs = 12 * math.exp(random.normal(0, 0.1)), 3 * math.exp(random.normal(0, 0.3))
        one = Estimate(ours, ours * math.exp(-0.196), ours * math.exp(0.196))
        other = Estimate(theirs, theirs * math.exp(-0.588), theirs * math.exp(0.588))
        covered += ratio_of(one, other).contains(4.0)
    assert covered / num == pytest.approx(0.95, abs=0.015)


def test_the_ratio_of_a_figure_to_itself_is_turned_around():
    one, other = Estimate(2.0, 1.5, 3.0), Estimate(5.0, 4.0, 9.0)
    there, back = ratio_of(one, other), ratio_of(other, one)
    assert there.value * back.value == pytest.approx(1.0)
    assert there.low is not None
    assert back.high is not None
    assert there.low * back.high == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (Estimate(0.1, 0.05, 0.2), "10 times lower"),
        (Estimate(0.8, 0.7, 0.9), "20% lower"),
        (Estimate(3.0, 2.0, 4.0), "3.0 times higher"),
        (Estimate(1.25, 1.1, 1.4), "25% higher"),
        (Estimate(0.5, 0.2, 1.1), "not to be told apart"),
        (Estimate(0.5), "not to be told apart"),
    ],
)
def test_in_words(estimate, words):
    assert in_words(estimate) == words
