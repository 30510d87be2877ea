"""Distances between laws, by hand, by their laws, and by their intervals."""

from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.total_variation import (
    distance,
    expected_distance,
    frequencies,
    pair_events,
    token_events,
    total_variation,
)
from support.present import present

V, L = 3, 4
SIZES = {token_events: L * V, pair_events: V * V}
KINDS = pytest.mark.parametrize("events", [token_events, pair_events])
CHAIN = torch.tensor([[0.1, 0.7, 0.2], [0.2, 0.1, 0.7], [0.7, 0.2, 0.1]], dtype=torch.float64)
"""Each token is mostly followed by the next. Every token has probability 1/3 everywhere, in both directions."""


def stories(num: int, seed: int = 0, chain: Tensor = CHAIN) -> Tensor:
    """Of the chain, from a uniform first token."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(V, (num, L), generator=generator)
    for place in range(1, L):
        ids[:, place] = torch.multinomial(chain[ids[:, place - 1]], 1, generator=generator)[:, 0]
    return ids


def rising(num: int, seed: int = 0) -> Tensor:
    """Independent tokens that are larger at later positions."""
    laws = torch.tensor([[6, 3, 1], [4, 4, 2], [2, 4, 4], [1, 3, 6]]).double()
    return torch.multinomial(laws, num, True, generator=torch.Generator().manual_seed(seed)).T.contiguous()


def far(events, one: Tensor, other: Tensor) -> float:
    return total_variation(*(frequencies(events(ids, V), SIZES[events]) for ids in (one, other)))


def test_distances_are_those_of_brute_force():
    one, other = stories(20), rising(30)

    def at(ids: Tensor, place: int, token: int) -> float:
        return sum(row[place] == token for row in ids.tolist()) / len(ids)

    gaps = [abs(at(one, place, token) - at(other, place, token)) for place in range(L) for token in range(V)]
    assert far(token_events, one, other) == pytest.approx(sum(gaps) / 2 / L, rel=1e-12)

    def share(ids: Tensor, pair: tuple[int, ...]) -> float:
        rows = ids.tolist()
        return sum((a, b) == pair for row in rows for a, b in pairwise(row)) / (len(rows) * (L - 1))

    pairs = sum(abs(share(one, pair) - share(other, pair)) for pair in product(range(V), repeat=2)) / 2
    assert far(pair_events, one, other) == pytest.approx(pairs, rel=1e-12)


@KINDS
@given(seeds=st.tuples(*[st.integers(0, 99)] * 3), nums=st.tuples(*[st.integers(1, 9)] * 3))
def test_it_is_a_metric_from_0_to_1(events, seeds, nums):
    a, b, c = (rising(num, seed) for num, seed in zip(nums, seeds, strict=True))
    assert far(events, a, b) == far(events, b, a)
    assert 0 <= far(events, a, b) <= 1 + 1e-12
    assert far(events, a, c) <= far(events, a, b) + far(events, b, c) + 1e-12
    assert far(events, a, a.repeat(3, 1)) == pytest.approx(0.0, abs=1e-12)


@KINDS
def test_laws_without_a_common_event_are_at_1(events):
    zeros, ones = (torch.full((5, L), v) for v in (0, 1))
    assert far(events, zeros, ones) == 1.0
    found = distance(events(zeros, V), frequencies(events(ones, V), SIZES[events]))
    assert found == Estimate(1.0, 1.0, 1.0)


@KINDS
def test_samples_of_the_law_itself_are_at_chance_which_falls_with_their_number(events):
    """By the central limit, as 1 / sqrt(num); the law of few events is known from very many."""
    law = frequencies(events(rising(200_000, seed=1), V), SIZES[events])
    few, many = (
        sum(distance_alone(events(rising(num, seed), V), law) for seed in range(2, 42)) / 40 for num in (50, 800)
    )
    assert few > 0.02
    assert few / many == pytest.approx(4.0, rel=0.2)


def distance_alone(events: Tensor, law: Tensor) -> float:
    return total_variation(frequencies(events, len(law)), law)


def test_positions_that_are_shuffled_are_seen_by_tokens():
    ids, other = rising(4000), rising(4000, seed=1)
    rows = torch.stack([torch.randperm(L, generator=torch.Generator().manual_seed(n)) for n in range(len(ids))])
    assert far(token_events, ids.gather(1, rows), other) > 0.15
    assert far(token_events, ids, other) < 0.03


def test_an_order_that_is_reversed_is_seen_by_pairs_alone():
    """The chain backwards has the same tokens everywhere, and each is mostly followed by the one before."""
    ids, other = stories(4000), stories(4000, seed=1)
    assert far(token_events, ids.flip(1), other) < 0.03
    assert far(pair_events, ids.flip(1), other) == pytest.approx(0.5, abs=0.05)
    assert far(pair_events, ids, other) < 0.03


@KINDS
def test_the_value_is_that_of_the_samples_whatever_they_leave_out(events):
    law = frequencies(events(rising(5000), V), SIZES[events])
    samples = events(torch.zeros(7, L, dtype=torch.long), V)
    assert distance(samples, law).value == pytest.approx(distance_alone(samples, law), rel=1e-12)
    alone = distance(samples[:1], law)
    assert (alone.low, alone.high) == (None, None)


def test_equal_seeds_give_equal_intervals():
    law, ids = frequencies(token_events(rising(5000), V), L * V), token_events(rising(40, seed=1), V)
    assert distance(ids, law) == distance(ids, law)
    assert distance(ids, law).value == distance(ids, law, seed=1).value
    assert distance(ids, law) != distance(ids, law, seed=1)


@KINDS
@pytest.mark.parametrize(
    ("samples", "most_too_wide"),
    [(stories, 1.2), (rising, 1.6)],
    ids=["far from the law", "of the law"],
)
def test_the_interval_covers_the_distance_that_such_sets_have(events, samples, most_too_wide, monkeypatch):
    """Of 60 sets of 41 samples (an odd number) about 95%, with the right width; rather too wide for the law itself."""
    monkeypatch.setattr("multimdm.evaluation.total_variation._HALVES", 200)
    law = frequencies(events(rising(200_000, seed=1), V), SIZES[events])
    values = torch.tensor([distance_alone(events(samples(41, seed), V), law) for seed in range(1000, 1600)])
    estimates = [distance(events(samples(41, seed), V), law) for seed in range(60)]
    covered = sum(e.contains(float(values.mean())) for e in estimates)
    assert 52 <= covered <= 60
    width = sum(present(e.high) - present(e.low) for e in estimates) / 60
    assert 0.85 <= width / (2 * 1.96 * float(values.std())) <= most_too_wide


def test_the_expected_distance_of_draws_from_the_law_itself_is_exact():
    """Against all outcomes of two draws from three events, and against many sets."""
    law = torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=torch.float64)
    by_hand = 0.0
    for one in range(3):
        for two in range(3):
            shares = torch.zeros(4, dtype=torch.float64)
            shares[one] += 0.5
            shares[two] += 0.5
            by_hand += float(law[one] * law[two]) * total_variation(shares, law)
    assert expected_distance(law, 2) == pytest.approx(by_hand, rel=1e-12)
    draws = torch.multinomial(law, 50 * 4_000, True, generator=torch.Generator().manual_seed(0)).view(4_000, 50)
    found = [total_variation(frequencies(row[:, None], 4), law) for row in draws]
    assert expected_distance(law, 50) == pytest.approx(sum(found) / len(found), rel=0.03)
    assert expected_distance(torch.tensor([1.0, 0.0], dtype=torch.float64), 7) == 0.0
