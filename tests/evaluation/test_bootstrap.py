import math

import pytest
import torch

from multimdm.evaluation.bootstrap import Bootstrap, Estimate, perplexity
from multimdm.evaluation.sample_statistics import token_counts, unigram_entropy
from support.present import present


def test_a_ratio_is_one_of_sums():
    nll, tokens = torch.tensor([10.0, 1.0]), torch.tensor([5, 1])
    assert Bootstrap(2).ratio(nll, tokens, perplexity).value == pytest.approx(math.exp(11 / 6))


def test_equal_seeds_give_equal_intervals():
    values = torch.arange(50).double()
    assert Bootstrap(50).mean(values) == Bootstrap(50).mean(values)
    assert Bootstrap(50, seed=1).mean(values) != Bootstrap(50).mean(values)


def test_chunks_change_nothing(monkeypatch):
    values = torch.arange(50).double()
    whole = Bootstrap(50).mean(values)
    monkeypatch.setattr("multimdm.evaluation.bootstrap._ENTRIES", 170)
    assert Bootstrap(50).mean(values) == whole


def test_the_interval_is_transformed_with_the_value():
    values, ones = torch.arange(30).double() / 10, torch.ones(30)
    plain, transformed = (Bootstrap(30).ratio(values, ones, f) for f in (float, perplexity))
    assert transformed == Estimate(*(math.exp(present(x)) for x in (plain.value, plain.low, plain.high)))


def test_one_sample_has_no_interval():
    assert Bootstrap(1).mean(torch.tensor([3.0])) == Estimate(3.0, None, None)
    assert Bootstrap(1).share(torch.tensor([True])) == Estimate(1.0, None, None)


def test_overlap():
    one = Estimate(1.0, 0.5, 1.5)
    assert one.overlaps(Estimate(2.0, 1.5, 2.5))
    assert not one.overlaps(Estimate(2.0, 1.6, 2.5))
    assert one.overlaps(Estimate(9.0))  # of which nothing is known


def test_coverage():
    """Of 400 sets of 60 numbers, about 95% must have intervals with the true mean inside."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.empty(400, 60, dtype=torch.float64).exponential_(1.0, generator=generator)
    estimates = [Bootstrap(60, resamples=400).mean(row) for row in draws]
    covered = sum(e.contains(1.0) for e in estimates) / 400
    assert 0.90 <= covered <= 0.98
    # The error of the mean of 60 is 1 / sqrt(60); two-sided 95% is 1.96 of them on each side.
    widths = torch.tensor([e.width for e in estimates])
    assert float(widths.mean()) == pytest.approx(2 * 1.96 / math.sqrt(60), rel=0.1)


def test_coverage_of_a_ratio_whose_parts_are_correlated():
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, 50, (300, 80), generator=generator)
    noise = torch.randn(300, 80, generator=generator, dtype=torch.float64)
    nll = 2.0 * tokens + noise * tokens.double().sqrt()
    estimates = [Bootstrap(80, resamples=400).ratio(*row, perplexity) for row in zip(nll, tokens, strict=True)]
    covered = sum(e.contains(math.exp(2.0)) for e in estimates) / 300
    assert 0.90 <= covered <= 0.98


def test_shares_that_all_agree_are_not_certain():
    """Wilson's interval for 0 of n is [0, z^2 / (n + z^2)]."""
    z2 = 1.959963984540054**2
    none = Bootstrap(8).share(torch.zeros(8, dtype=torch.bool))
    assert (none.value, none.low, none.high) == pytest.approx((0.0, 0.0, z2 / (8 + z2)))
    every = Bootstrap(8).share(torch.ones(8, dtype=torch.bool))
    assert (every.value, every.low, every.high) == pytest.approx((1.0, 8 / (8 + z2), 1.0))


def test_parts_that_all_agree_are_not_certain():
    """Three samples with parts are three trials, however many parts they have; one has none."""
    parts = torch.tensor([5, 5, 0, 5])
    samples = Bootstrap(3).share(torch.ones(3, dtype=torch.bool))
    assert Bootstrap(4).share_of_parts(parts, parts) == samples
    assert Bootstrap(4).share_of_parts(torch.zeros_like(parts), parts).high == pytest.approx(1 - present(samples.low))
    some = torch.tensor([5, 3, 0, 1])
    assert Bootstrap(4).share_of_parts(some, parts) == Bootstrap(4).ratio(some, parts)


def test_perplexity_does_not_overflow():
    assert math.isfinite(perplexity(1e6))


def test_the_pooled_entropy_is_that_of_all_samples_together():
    """Equal samples add nothing to each other; different ones do, and the interval covers the law's own entropy."""
    ids = torch.randint(0, 20, (1, 30), generator=torch.Generator().manual_seed(0)).expand(8, 30)
    alike = Bootstrap(8).pooled_entropy(token_counts(ids))
    assert alike.value == pytest.approx(float(unigram_entropy(ids)[0]))
    assert alike.low == pytest.approx(alike.value)
    assert alike.high == pytest.approx(alike.value)
    law = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    covered = 0
    for seed in range(50):
        draws = torch.multinomial(law, 200 * 10, replacement=True, generator=torch.Generator().manual_seed(seed))
        found = Bootstrap(200, resamples=200).pooled_entropy(token_counts(draws.view(200, 10)))
        assert found.value == pytest.approx(float(torch.special.entr(draws.bincount() / 2000).sum()))
        covered += found.contains(float(torch.special.entr(law).sum()))
    assert 41 <= covered <= 50


def test_the_pooled_entropy_of_resamples_without_text():
    """Of two samples one is padding: a quarter of the resamples have no token at all."""
    found = Bootstrap(2).pooled_entropy(torch.tensor([[3, 1], [0, 0]]))
    assert found.value == pytest.approx(math.log(4) - 0.75 * math.log(3))
    assert math.isfinite(found.width)


def test_padding_has_no_counts():
    ids, valid = torch.tensor([[3, 3, 7], [7, 5, 5]]), torch.tensor([[True, True, False], [True, True, True]])
    assert token_counts(ids, valid).tolist() == [[2, 0, 0], [0, 2, 1]]
