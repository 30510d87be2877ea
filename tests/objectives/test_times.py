"""Times of a batch are spread evenly, each of them is uniform, and any run of neighbours is spread too.

Times of a density have its law, and integrals stay what they were if losses are divided by it.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from multimdm.objectives import (
    Batch,
    Candi,
    Consistency,
    ConsistencySettings,
    Elbo,
    Objective,
    Relaxation,
    RelaxedElbo,
    Sdtt,
    SdttSettings,
    TimeSettings,
    stratified_times,
)
from multimdm.objectives.times import density_at, draw_times
from multimdm.process import Hybrid, Streams, Uniform
from support.distilling import PROCESSES, B, V, batch, network
from support.quadrature import unit_interval
from support.statistics import MUTANT, REJECT, chi_square_p

SETTINGS = {
    "late": TimeSettings(density="late"),
    "much later": TimeSettings(density="late", power=3.0, even=0.05),
    "bell": TimeSettings(density="bell"),
    "cut off": TimeSettings(density="bell", center=0.95, width=0.3, even=0.4),
}
EVERY = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


def integral(settings: TimeSettings, value) -> float:
    """Of value(time, weight) over the even numbers from which times are made: before and behind the even share."""
    v, measure = unit_interval()
    even = 0.1 if settings.even is None else settings.even
    result = 0.0
    for start, length in ((0.0, even), (even, 1 - even)):
        drawn = draw_times(settings, start + length * v)
        result += length * float((measure * value(drawn.times, drawn.weight)).sum())
    return result


@EVERY
@pytest.mark.parametrize("loss", [torch.ones_like, lambda t: t, lambda t: torch.cos(9 * t), lambda t: -torch.log(t)])
def test_divided_by_the_density_every_integral_is_what_it_was(settings, loss):
    t, measure = unit_interval()
    expected = float((measure * loss(t)).sum())
    assert integral(settings, lambda times, weight: loss(times) * weight) == pytest.approx(expected, abs=1e-8)


@EVERY
def test_without_the_division_times_are_weighed_by_the_density(settings):
    t, measure = unit_interval()
    unweighted = replace(settings, weight="density")
    assert draw_times(unweighted, t).weight is None
    expected = float((measure * density_at(settings, t) * t**2).sum())
    assert integral(unweighted, lambda times, _: times**2) == pytest.approx(expected, abs=1e-8)
    assert abs(expected - 1 / 3) > 1e-2


@EVERY
def test_times_follow_the_density(settings):
    """Bins of equal width against the integral of the density; uniform times do not pass."""
    t, measure = unit_interval()
    probs = torch.stack([(0.1 * measure * density_at(settings, 0.1 * (bin_ + t))).sum() for bin_ in range(10)])
    assert float(probs.sum()) == pytest.approx(1, abs=1e-9)
    u = torch.rand(40_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for times, expected in ((draw_times(settings, u).times, True), (u, False)):
        p = chi_square_p(torch.bincount((10 * times).long(), minlength=10), probs)
        assert p > REJECT if expected else p < MUTANT


@EVERY
def test_no_time_is_left_out_and_none_counts_too_much(settings):
    ends = torch.tensor([2.0**-53, 1e-9, 0.5, 1 - 1e-9, 1 - 2.0**-53], dtype=torch.float64)
    drawn = draw_times(settings, torch.cat([ends, stratified_times(64, torch.Generator().manual_seed(0))]))
    assert bool((drawn.times > 0).all())
    assert bool((drawn.times < 1).all())
    assert drawn.weight is not None
    assert float(drawn.weight.max()) <= 1 / (settings.even or 0.1) + 1e-9


def test_uniform_times_are_left_as_they_are():
    u = stratified_times(8, torch.Generator().manual_seed(0))
    drawn = draw_times(TimeSettings(), u)
    assert drawn.times is u
    assert drawn.weight is None


def test_even_numbers_give_even_times():
    """As many times in every interval of equal probability, give or take one: not as independent draws."""
    settings = SETTINGS["bell"]
    times = draw_times(settings, stratified_times(1000, torch.Generator().manual_seed(0))).times
    t, measure = unit_interval()
    for end in (0.2, 0.5, 0.7):
        before = float((end * measure * density_at(settings, end * t)).sum())
        assert abs(int((times < end).sum()) - 1000 * before) <= 2.5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"power": 2.0}, "power is for density late; got 2 with uniform"),
        ({"density": "bell", "power": 2.0}, "power is for density late; got 2 with bell"),
        ({"density": "late", "width": 0.1}, "width is for density bell; got 0.1 with late"),
        ({"even": 0.5}, "even is for density late or bell; got 0.5 with uniform"),
        ({"weight": "density"}, "weight density needs density late or bell"),
        ({"density": "late", "power": 0.0}, "greater than 0"),
        ({"density": "bell", "center": 1.5}, "less than or equal to 1"),
        ({"density": "bell", "even": 0.0}, "greater than 0"),
        ({"density": "normal"}, "'uniform', 'late' or 'bell'"),
    ],
)
def test_bad_settings(wrong, message):
    with pytest.raises(ValidationError, match=message):
        TimeSettings(**wrong)


# ------------------------------------------------------- every objective

CONSISTENCY = ConsistencySettings(delta=0.25, rounds=2)
OBJECTIVES: dict[str, tuple[Any, str]] = {
    "elbo": (Elbo(PROCESSES["M=3"]), "M=3"),
    "duo": (Elbo(PROCESSES["uniform"]), "uniform"),
    "relaxed": (RelaxedElbo(Uniform(V), Relaxation(share=1.0)), "uniform"),
    "candi": (Candi(Hybrid(V, noise_dim=32)), "mdlm"),
    "sdtt": (Sdtt(PROCESSES["M=3"], SdttSettings(delta=0.2, rounds=2)), "M=3"),
} | {
    f"consistency, {target}": (Consistency(PROCESSES["M=3"], replace(CONSISTENCY, visible_target=target)), "M=3")
    for target in ("skip", "cross_entropy", "smoothed")
}


def _loss(objective: Objective, net, given: Batch) -> Tensor:
    objective = objective.taught_by(net) if isinstance(objective, (Consistency, Sdtt)) else objective
    result = objective(net, given)
    torch.testing.assert_close(result.loss.detach(), torch.stack(list(result.terms.values())).sum())
    return result.loss.detach()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_weighs_its_sequences(name, padded, monkeypatch):
    """With weights, a batch is the weighted sum of its sequences; with weights of 1 it is what it was without."""
    monkeypatch.setattr("multimdm.models.head._CHUNK_ENTRIES", 4 * V)
    objective, process = OBJECTIVES[name]
    net, weight = network(PROCESSES[process]), torch.tensor([0.3, 2.0, 1.0, 0.0, 5.0, 0.7], dtype=torch.float64)
    plain = _loss(objective, net, batch(padded))
    torch.testing.assert_close(_loss(objective, net, replace(batch(padded), weight=torch.ones(B).double())), plain)
    expected = torch.zeros((), dtype=torch.float64)
    for i in range(B):
        given = batch(padded)
        alone = Batch(
            given.ids[i : i + 1],
            None if given.valid is None else given.valid[i : i + 1],
            given.times[i : i + 1],
            Streams([int(given.generator.seeds[i])]),
            given.step,
            given.steps,
        )
        expected = expected + weight[i] * _loss(objective, net, alone)
    weighed = _loss(objective, net, replace(batch(padded), weight=weight))
    torch.testing.assert_close(weighed, expected.to(weighed.dtype), rtol=1e-6, atol=1e-6)
    assert float((weighed - plain).abs()) > 1e-3


@pytest.mark.parametrize("num", [1, 2, 3, 8, 64, 100, 1024])
def test_one_time_in_each_interval(num):
    t = stratified_times(num, torch.Generator().manual_seed(0))
    assert t.dtype == torch.float64
    assert bool((t > 0).all())
    assert bool((t < 1).all())
    assert torch.sort((t * num).long()).values.tolist() == list(range(num))


def test_each_single_time_is_uniform():
    """Without the random start, the first sequence of every batch would always be noised to the same degree."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack([stratified_times(8, generator) for _ in range(4000)])
    for column in draws.T:
        counts = torch.bincount((column * 10).long(), minlength=10)
        assert chi_square_p(counts, torch.full((10,), 0.1, dtype=torch.float64)) > REJECT


@pytest.mark.parametrize(("num", "parts"), [(64, 2), (64, 4), (512, 8), (1000, 10)])
def test_the_part_of_a_rank_is_spread_too(num, parts):
    t = stratified_times(num, torch.Generator().manual_seed(1))
    for part in t.split(num // parts):
        assert abs(float(part.mean()) - 0.5) < 0.6 * parts / num + 0.05


def test_far_less_variance_than_independent_draws():
    generator = torch.Generator().manual_seed(0)
    even = torch.stack([(stratified_times(64, generator) ** 2).mean() for _ in range(300)])
    free = torch.stack([(torch.rand(64, generator=generator, dtype=torch.float64) ** 2).mean() for _ in range(300)])
    assert float(even.mean()) == pytest.approx(1 / 3, abs=1e-3)
    assert float(even.var()) < float(free.var()) / 500


def test_equal_generators_give_equal_times():
    one, other = (stratified_times(16, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(one, other)
