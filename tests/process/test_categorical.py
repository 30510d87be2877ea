"""Categorical draws are exact in the tail, where float32 Gumbel noise is not."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from multimdm.process import Streams, categorical, debug_checks, invert_cdf
from support.statistics import MUTANT, REJECT, chi_square_p, p_of_draws


@pytest.mark.parametrize("V", [2, 255, 256, 257, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_law(V, dtype):
    weights = torch.rand(V, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype) ** 3
    weights[V // 2] = 0.0
    draws = categorical(weights.expand(100_000, V), torch.Generator().manual_seed(1))
    assert p_of_draws(draws, weights.double() / weights.double().sum()) > REJECT


@given(weights=st.lists(st.sampled_from([0.0, 1e-30, 0.5, 1.0, 3.0]), min_size=2, max_size=600).filter(any))
def test_inverse_of_the_distribution_function(weights):
    w = torch.tensor(weights, dtype=torch.float64)
    u = torch.tensor([2.0**-54, 0.1, 0.25, 0.5, 0.9, 1 - 2.0**-53], dtype=torch.float64)
    index = invert_cdf(w.expand(len(u), -1), u)
    assert bool((w[index] > 0).all())  # what cannot occur is never drawn
    running = w.cumsum(0) / w.sum()
    assert bool((running[index] >= u - 1e-12).all())
    assert bool(((running - w / w.sum())[index] <= u + 1e-12).all())


def test_rare_tokens_have_their_share():
    """Bins of about a thousandth each; a draw at temperature 0.97, which is what a cut-off tail looks like, fails."""
    V, rows, chunks = 50_257, 1000, 60
    probs = 1 / torch.arange(1, V + 1, dtype=torch.float64)
    probs = probs / probs.sum()
    bins = ((1 - probs.cumsum(0)) * 1000).long().clamp_max(500)
    law = torch.zeros(501, dtype=torch.float64).index_add_(0, bins, probs)

    def p_value(weights: torch.Tensor) -> float:
        generator, counts = torch.Generator().manual_seed(2), torch.zeros(501)
        for _ in range(chunks):
            counts += torch.bincount(bins[categorical(weights.expand(rows, V), generator)], minlength=501)
        return chi_square_p(counts, law)

    assert p_value(probs.float()) > REJECT
    assert p_value(probs.float() ** (1 / 0.97)) < MUTANT


def test_rows_without_weight_give_a_token_all_the_same_and_debug_says_so():
    assert int(categorical(torch.zeros(2, 6)).max()) < 6
    assert int(categorical(torch.full((2, 6), float("nan"))).max()) < 6
    for weights in (torch.zeros(1, 6), torch.full((1, 6), float("nan")), torch.tensor([[1.0, -1.0]])):
        with debug_checks(), pytest.raises(ValueError, match="weights must be finite and not negative"):
            categorical(weights)


def test_streams_decide_row_by_row():
    weights = torch.rand(3, 7, 40, generator=torch.Generator().manual_seed(0))
    whole = categorical(weights, Streams([1, 2, 3]))
    assert torch.equal(categorical(weights[1:2], Streams([2]))[0], whole[1])
