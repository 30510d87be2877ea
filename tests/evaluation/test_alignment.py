import math
from functools import cache

import pytest
import torch

from multimdm.evaluation.alignment import Aligned, align_entropy, find_temperature
from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.measurement import measure
from multimdm.evaluation.sample_statistics import unigram_entropy
from multimdm.evaluation.settings import Drawing
from multimdm.pipeline import Model, Samples
from multimdm.process import Streams
from support.tiny_models import tales_model


def curve(function, width: float = 0.0):
    """A known function of tau as if it had been measured."""
    return lambda tau: Estimate(function(tau), function(tau) - width / 2, function(tau) + width / 2)


@pytest.mark.parametrize("target", [0.3, 1.9, 2.0, 2.1, 3.7])
def test_a_rising_curve_is_met(target):
    best, trials = find_temperature(curve(lambda tau: 2 * tau), target)
    assert best.temperature == pytest.approx(target / 2, abs=0.002)
    assert best.reaches(target)
    assert [t.temperature for t in trials] == sorted(t.temperature for t in trials)
    assert len(trials) <= 20


def test_a_falling_curve_is_met_on_the_other_side():
    best, _ = find_temperature(curve(lambda tau: 3 - tau), 2.5)
    assert best.temperature == pytest.approx(0.5, abs=0.01)
    assert best.reaches(2.5)


def test_an_unreachable_target_is_marked_and_the_closest_taken():
    """As DUO in the paper: the entropy has its greatest value somewhere, below the target."""
    best, _ = find_temperature(curve(lambda tau: 4 - (math.log(tau) - 0.3) ** 2, width=0.01), 5.0)
    assert not best.reaches(5.0)
    assert best.entropy.value == pytest.approx(4.0, abs=0.005)
    assert best.temperature == pytest.approx(math.exp(0.3), rel=0.1)
    assert len(find_temperature(curve(lambda tau: 1.0), 5.0)[1]) <= 24


def test_a_peak_between_two_trials_is_found():
    """The target is passed only within a narrow range, which no first trial hits."""
    peak = curve(lambda tau: 2 + 0.5 * math.exp(-((math.log(tau) / 0.2 - 0.9) ** 2)))
    best, _ = find_temperature(peak, 2.45)
    assert best.reaches(2.45)


def test_a_jump_over_the_target_is_marked():
    best, trials = find_temperature(curve(lambda tau: 1.0 if tau < 1.3 else 2.0), 1.4)
    assert not best.reaches(1.4)
    assert best.entropy.value == 1.0
    assert len(trials) <= 24


def test_a_wide_interval_ends_the_search_early():
    narrow, wide = (len(find_temperature(curve(lambda tau: 2 * tau, width), 2.37)[1]) for width in (0.0, 1.0))
    assert wide < narrow


@pytest.mark.parametrize("target", [-1.0, math.nan, math.inf])
def test_what_is_no_entropy_is_refused(target):
    with pytest.raises(ValueError, match="must be a number of nats"):
        find_temperature(curve(lambda tau: tau), target)


class Urn(Model):
    """Tokens are independent; the temperature is the size of the vocabulary they are drawn from, in tens."""

    def __init__(self) -> None:
        self.tokenizer, self.asked = None, []

    def sample(self, num=4, length=None, steps=None, temperature=None, seed=0, sampling=None, **options) -> Samples:
        assert sampling is not None
        temperature = sampling.temperature
        assert temperature is not None
        self.asked.append((seed, temperature))
        u = Streams.spawn(seed, num).uniform((num, 64))
        return Samples((u * 10 * temperature).long(), [], 1)


def align(model: Model, steps: int, target: float, drawing: Drawing) -> Aligned:
    """Every temperature is measured once."""
    measured_at = cache(lambda tau: measure(model, None, steps, tau, drawing))
    return align_entropy(lambda tau: measured_at(tau).entropy, measured_at, target)


def test_alignment_of_samples():
    model = Urn()
    drawing = Drawing(num=200, seed=7)
    expected = unigram_entropy((Streams.spawn(0, 4000).uniform((4000, 64)) * 20).long()).mean()
    result = align(model, 4, float(expected), drawing)
    assert result.reached
    assert result.measurement.temperature == pytest.approx(2.0, abs=0.05)
    assert result.measurement.entropy.contains(float(expected))
    assert {seed for seed, _ in model.asked} == {7}  # common random numbers
    assert len(model.asked) == len(result.trials)


def test_more_than_the_greatest_entropy_is_out_of_reach():
    result = align(Urn(), 4, 10.0, Drawing(num=20))
    assert not result.reached
    assert result.target == 10.0
    assert result.measurement.temperature == 5.0  # the highest that is tried


def test_alignment_of_a_network():
    result = align(tales_model(), 2, 3.0, Drawing(num=32))
    assert result.reached
    assert result.measurement.entropy.value == pytest.approx(3.0, abs=0.02)
    assert torch.isfinite(torch.tensor(result.measurement.temperature))
