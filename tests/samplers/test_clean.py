"""The choice of clean tokens: truncation, precision, and no bias in the tail."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from multimdm.process import MultiMask, Uniform
from multimdm.samplers import Batch, Choice, ask
from multimdm.samplers.choice import keep_top_k, keep_top_p
from support.statistics import MUTANT, REJECT, chi_square_p

ROWS = st.lists(st.sampled_from([0.0, 1e-6, 0.1, 0.3, 0.3, 1.0]), min_size=4, max_size=4).filter(any)


@given(rows=st.lists(ROWS, min_size=1, max_size=4), k=st.integers(1, 6))
def test_top_k_keeps_the_largest(rows, k):
    weights = torch.tensor(rows)
    kept = keep_top_k(weights, k)
    assert torch.equal(kept[kept > 0], weights[kept > 0])
    assert torch.equal(kept.sort(-1).values[:, -k:], weights.sort(-1).values[:, -k:])
    assert bool(((kept > 0).sum(-1) <= k).all())


@given(rows=st.lists(ROWS, min_size=1, max_size=4), p=st.floats(0.01, 1.0))
def test_top_p_keeps_the_fewest_that_reach_the_share(rows, p):
    weights = torch.tensor(rows, dtype=torch.float64)
    kept = keep_top_p(weights, p)
    assert torch.equal(kept[kept > 0], weights[kept > 0])
    for before, after in zip(weights, kept, strict=True):
        left = after[after > 0]
        assert float(left.sum()) >= p * float(before.sum()) - 1e-12
        assert float(left.sum() - left.min()) < p * float(before.sum()) + 1e-12
        assert float(left.min()) >= float(before[after == 0].max() if bool((after == 0).any()) else 0.0)


def test_weights_are_the_softmax_at_a_temperature():
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(Choice(temperature=0.7).weights(logits), torch.softmax(logits / 0.7, -1))
    cold = Choice(temperature=0).weights(logits)
    assert torch.equal(cold.argmax(-1), logits.argmax(-1))
    assert torch.equal(cold.sum(-1), torch.ones(5, dtype=torch.float64))


def test_half_precision_is_widened_before_the_temperature():
    logits = torch.randn(5, 400, generator=torch.Generator().manual_seed(0)).bfloat16()
    weights = Choice(temperature=0.3).weights(logits)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights, torch.softmax(logits.float() / 0.3, -1))


def test_confidence_is_the_untempered_probability_of_the_chosen_token():
    process, logits = MultiMask(6, 2), torch.randn(6, generator=torch.Generator().manual_seed(1))

    def network(x, t, positions, valid, reduce):
        return reduce(logits.expand(int(positions.sum()), 6), slice(0, int(positions.sum())))

    batch = Batch(torch.tensor([[6, 2, 7], [7, 6, 1]]), torch.ones(2, 3, dtype=torch.bool))
    clean, confidence = ask(process, batch, 0.5, Choice(temperature=2.0), confidence=True).put_to(network)
    assert confidence is not None
    hidden = process.active(batch.x)
    torch.testing.assert_close(confidence[hidden], torch.softmax(logits, -1)[clean[hidden]])
    assert torch.equal(clean[~hidden], torch.tensor([2, 1]))
    assert float(confidence[~hidden].abs().max()) == 0


def test_no_call_without_positions():
    def network(*arguments, **named):
        raise AssertionError("called")

    batch = Batch(torch.tensor([[1, 2]]), torch.ones(1, 2, dtype=torch.bool))
    assert torch.equal(ask(MultiMask(4, 1), batch, 0.5, Choice()).put_to(network).clean, batch.x)
    fixed = Batch(batch.x, ~batch.free)
    assert torch.equal(ask(Uniform(4), fixed, 0.5, Choice()).put_to(network).clean, batch.x)


# -------------------------------------------------------------------------------- the tail

V, DRAWS, STEPS = 50_257, 1_000_000, 64
ZIPF = 1 / torch.arange(1, V + 1, dtype=torch.float64)
ZIPF = ZIPF / ZIPF.sum()
BINS = (ZIPF.flip(0).cumsum(0).flip(0) / 1e-4).long().clamp_max(2000)
"""Bins of about 1e-4 each from the rarest token on; the frequent tokens, 0.8 of the mass, share the last."""
BIN_LAW = torch.zeros(2001, dtype=torch.float64).index_add_(0, BINS, ZIPF)


def tail_p(draws: torch.Tensor) -> float:
    return chi_square_p(torch.bincount(BINS[draws], minlength=2001), BIN_LAW)


class OneLaw(Choice):
    """Rows of logits are all the same here, so their softmax is computed once and not a million times."""

    def weights(self, logits: torch.Tensor) -> torch.Tensor:
        return super().weights(logits[:1]).expand(len(logits), -1)


def test_rare_tokens_have_their_share():
    """A million hypotheses from a network of float32 logits that works in chunks, as the sampler draws them."""
    process, logits, asked = MultiMask(V, 1), ZIPF.log().float(), []

    def network(x, t, positions, valid, reduce):
        n = int(positions.sum())
        chunks = [slice(start, min(start + 3000, n)) for start in range(0, n, 3000)]
        asked.append(n)
        parts = [reduce(logits.expand(rows.stop - rows.start, V), rows) for rows in chunks]
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))

    x = torch.full((DRAWS // 1000, 1000), V)
    batch = Batch(x, torch.ones_like(x, dtype=torch.bool), generator=torch.Generator().manual_seed(4))
    clean = ask(process, batch, 0.5, OneLaw()).put_to(network).clean
    assert asked == [DRAWS]
    assert tail_p(clean.flatten()) > REJECT


def float32_gumbel_draws(steps: int, generator: torch.Generator) -> torch.Tensor:
    """Tokens that one of K steps reveals if token or mask is the argmax of log-probabilities plus float32 noise.

    A race: state i arrives at E_i / p_i, E_i = -log u_i, and the first wins. Tokens have p_i = ZIPF_i / K, the mask has
    1 - 1/K. Given that a token is first, it is i with probability ZIPF_i, its time T is a standard exponential and the
    mask comes an exponential of rate 1 - 1/K later. A float32 u_i is the number rounded down to a multiple of 2^-24,
    which delays E_i: the token still wins if its float32 Gumbel beats the mask's. (Other tokens in the meantime, of
    total rate 1/K, are left out; they would only reject more rare tokens.)
    """
    token = torch.multinomial(ZIPF, DRAWS, replacement=True, generator=generator)
    race = torch.empty(2, DRAWS, dtype=torch.float64).exponential_(generator=generator)
    p_token, p_mask = ZIPF[token] / steps, 1 - 1 / steps
    u_token = torch.exp(-race[0] * p_token)
    u_mask = torch.exp(-(race[0] * p_mask + race[1]))
    gumbels = (-torch.log(-torch.log(torch.floor(u * 2**24) / 2**24)) for u in (u_token, u_mask))
    at_token, at_mask = (g + p.log() for g, p in zip(gumbels, (p_token, torch.tensor(p_mask)), strict=True))
    return token[at_token > at_mask]


def test_float32_gumbels_are_rejected_by_the_same_test():
    generator = torch.Generator().manual_seed(4)
    assert tail_p(torch.multinomial(ZIPF, DRAWS, replacement=True, generator=generator)) > REJECT
    assert tail_p(float32_gumbel_draws(STEPS, generator)) < MUTANT
