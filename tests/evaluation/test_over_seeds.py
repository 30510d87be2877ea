"""Figures over several training seeds."""

import math
from dataclasses import fields, replace
from typing import get_args, get_type_hints

import pytest
from scipy import stats

from multimdm.evaluation.alignment import Aligned
from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.mask_reading import MaskReading
from multimdm.evaluation.mauve import Mauve
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.nelbo import Nelbo
from multimdm.evaluation.over_seeds import mean_over_seeds, over_seeds, ratios_over_seeds
from multimdm.evaluation.plan import Evaluation
from multimdm.evaluation.recall import Recall
from multimdm.evaluation.shortfall import AtTime, Shortfall
from support.measurements import made_up

VALUES = (7.0, 9.0, 14.0)


def measurement(value: float) -> Measurement:
    estimate = Estimate(value, value - 1, value + 1)
    share = Estimate(value / 14, 0.0, 1.0)
    return made_up(
        4,
        share,
        temperature=value / 10,
        length=16,
        gen_ppl=estimate,
        entropy=estimate,
        pooled_entropy=estimate,
        valid_sentences=None,
        texts=("text",),
    )


def evaluation(value: float, reached: bool = True) -> Evaluation:
    m = measurement(value)
    return Evaluation(
        label="model",
        path=f"seed-{value}",
        description="",
        fingerprint=str(value),
        judge="tales",
        drawing={},
        real=None,
        nelbo=Nelbo(value, 1.0, 0.1, 10, 100),
        nats_per_token=None,
        recalls=(Recall(value / 10, Estimate(value), 4, 8),),
        measurements=(m,),
        aligned=(Aligned(3.0, reached, (), m),),
        trajectories=(),
    )


def test_the_interval_is_students():
    mean, low, high = mean_over_seeds(VALUES)
    expected = stats.t.interval(0.95, 2, loc=stats.tmean(VALUES), scale=stats.sem(VALUES))
    assert (low, high) == pytest.approx(expected, rel=1e-12)
    assert mean == pytest.approx(10.0)


def test_perplexities_have_a_geometric_mean_and_shares_stay_shares():
    found = over_seeds([evaluation(value) for value in VALUES])
    m = found.measurements[0]
    assert m.gen_ppl is not None
    assert m.valid_stories is not None
    _, low, high = mean_over_seeds([math.log(value) for value in VALUES])
    assert m.gen_ppl.value == pytest.approx(math.prod(VALUES) ** (1 / 3), rel=1e-12)
    assert (m.gen_ppl.low, m.gen_ppl.high) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-12)
    assert m.entropy.value == pytest.approx(10.0)
    assert (m.valid_stories.value, m.valid_stories.high) == pytest.approx((10 / 14, 1.0))
    assert m.valid_sentences is None
    for distance in (m.token_distance, m.pair_distance):
        assert distance is not None
        assert (distance.value, distance.high) == pytest.approx((10 / 14, 1.0))
    assert (m.token_chance, m.pair_chance) == (0.25, 0.3)
    assert (found.seeds, found.spread) == (3, "over 3 training seeds")


def test_every_figure_of_samples_is_averaged():
    """One that was forgotten would be that of the first seed."""

    def whole(value: float) -> Measurement:
        figures = {
            name: Estimate(value / 20)
            for name, kind in get_type_hints(Measurement).items()
            if Estimate in (kind, *get_args(kind)) and name != "distinct"
        }
        assert {"gen_ppl", "subject_pair_distance"} <= set(figures)
        return replace(measurement(value), **figures)

    first, mean = whole(7.0), over_seeds([replace(evaluation(v), measurements=(whole(v),)) for v in VALUES])
    (found,) = mean.measurements
    same = [field.name for field in fields(Measurement) if getattr(found, field.name) == getattr(first, field.name)]
    assert [name for name in same if isinstance(getattr(first, name), Estimate)] == []
    assert all(one != other for one, other in zip(found.distinct, first.distinct, strict=True))


def test_seeds_without_a_single_valid_story_prove_no_certainty():
    """None of 3 x 8: Wilson's interval for 24 trials."""
    none = replace(measurement(7.0), valid_stories=Estimate(0.0, 0.0, 0.3))
    share = over_seeds([replace(evaluation(7.0), measurements=(none,))] * 3).measurements[0].valid_stories
    assert share is not None
    assert (share.value, share.low) == (0.0, 0.0)
    assert share.high == pytest.approx(stats.binomtest(0, 24).proportion_ci(method="wilson").high, rel=1e-9)


def test_the_nelbo_has_the_error_over_seeds():
    found = over_seeds([evaluation(value) for value in VALUES]).nelbo
    assert found is not None
    assert found.total == pytest.approx(11.0)
    assert found.standard_error == pytest.approx(stats.sem(VALUES))


def test_recall_is_a_mean_over_seeds():
    (found,) = over_seeds([evaluation(value) for value in VALUES]).recalls
    assert (found.nats.value, found.nats.low, found.nats.high) == pytest.approx(mean_over_seeds(VALUES))
    assert found.temperature == pytest.approx(1.0)
    assert (found.sequences, found.strings) == (4, 8)
    (wide,) = over_seeds([evaluation(1.0), evaluation(9.0)]).recalls
    assert wide.nats.low == 0.0


def test_ratios_are_of_models_of_the_same_seed():
    """A model twice as good for every seed is so for certain, however much seeds differ."""
    theirs = [evaluation(value) for value in VALUES]
    (found,) = ratios_over_seeds([evaluation(value / 2) for value in VALUES], theirs)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    ours = [evaluation(value * factor) for value, factor in zip(VALUES, (0.3, 0.5, 0.4), strict=True)]
    (found,) = ratios_over_seeds(ours, theirs)
    expected = mean_over_seeds([math.log(factor) for factor in (0.3, 0.5, 0.4)])
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx(tuple(map(math.exp, expected)))


def test_there_is_no_ratio_without_a_judge():
    (one,) = evaluation(7.0).aligned
    unjudged = replace(evaluation(7.0), aligned=(replace(one, measurement=replace(one.measurement, gen_ppl=None)),))
    assert ratios_over_seeds([unjudged, evaluation(9.0)], [evaluation(7.0), evaluation(9.0)]) == [None]


def test_an_entropy_is_reached_if_every_seed_reached_it():
    assert over_seeds([evaluation(7.0), evaluation(9.0)]).aligned[0].reached
    assert not over_seeds([evaluation(7.0), evaluation(9.0, reached=False)]).aligned[0].reached


def test_what_masks_tell_and_where_networks_lose_over_seeds():
    def one(value: float) -> Evaluation:
        nats = Estimate(value)
        lost = Shortfall("data", None, None, 8, nats, (AtTime(0.9, nats), AtTime(value / 100, Estimate(value / 2))))
        return replace(evaluation(value), mask_reading=MaskReading(1.0, 1.0 + value, 0.1, 10), shortfalls=(lost,))

    found = over_seeds([one(value) for value in VALUES])
    assert found.mask_reading is not None
    assert found.mask_reading.difference == pytest.approx(10.0)
    assert found.mask_reading.standard_error == pytest.approx(stats.sem(VALUES))
    (lost,) = found.shortfalls
    mean, low, high = mean_over_seeds(VALUES)
    assert (lost.nats.value, lost.nats.low, lost.nats.high) == pytest.approx((mean, low, high))
    assert [at.time for at in lost.by_time] == pytest.approx([0.9, 0.1])
    assert lost.by_time[1].nats.value == pytest.approx(5.0)
    assert over_seeds([evaluation(value) for value in VALUES]).mask_reading is None


def test_mauve_over_seeds():
    """The interval is over seeds, and ends at 1 at the latest."""

    def one(value: float) -> Evaluation:
        share = Estimate(value / 14, 0.0, 1.0)
        return replace(evaluation(value), mauves=(Mauve(4, value / 10, "reader", 8, share, value / 20),))

    (found,) = over_seeds([one(value) for value in VALUES]).mauves
    mean, low, _ = mean_over_seeds([value / 14 for value in VALUES])
    assert (found.value.value, found.value.low, found.value.high) == pytest.approx((mean, low, 1.0))
    assert (found.temperature, found.real) == pytest.approx((1.0, 0.5))


def test_one_seed_keeps_its_intervals_over_samples():
    one = evaluation(7.0)
    assert over_seeds([one]) is one
    assert one.spread == "over samples"


def test_different_judges_are_not_averaged():
    with pytest.raises(ValueError, match="must have one judge; got other, tales"):
        over_seeds([evaluation(7.0), replace(evaluation(9.0), judge="other")])
