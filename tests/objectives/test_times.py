"""Times of a batch are spread evenly, each of them is uniform, and any run of neighbours is spread too."""

import pytest
import torch

from multimdm.objectives import stratified_times
from support.statistics import REJECT, chi_square_p


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
