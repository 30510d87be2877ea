"""The laws of quantile noise, by enumeration on a tiny source of texts, by chi-square, and far out in the tails."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from multimdm.process import Streams, debug_checks
from multimdm.process.quantile import (
    Cells,
    advise_quantile_masks,
    bucket_information,
    bucket_law,
    bucket_probability,
    buckets,
    cells,
    check_possible,
    in_order,
    left_to_chance,
    neighbour_laws,
    numbers,
    similarity_order,
    token_at,
    token_law,
)
from support.statistics import MUTANT, REJECT, p_of_draws

V, L, M = 3, 3, 4
TEXTS = torch.tensor(list(itertools.product(range(V), repeat=L)))
STRINGS = torch.tensor(list(itertools.product(range(M), repeat=L)))
TABLE = torch.tensor([2, 0, 1])
ORDERS = pytest.mark.parametrize("order", ["id", "probable", TABLE], ids=["id", "probable", "table"])


def source(seed: int) -> Tensor:
    """p(text) of all texts."""
    weights = torch.rand(len(TEXTS), generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 2 + 0.01
    return weights / weights.sum()


def conditionals(p: Tensor) -> Tensor:
    """q(a | x^{<l}) for all texts x: [texts, L, V]."""
    table = p.view(V, V, V)
    first = table.sum((1, 2)).expand(len(TEXTS), -1)
    second = table.sum(2)[TEXTS[:, 0]]
    third = table[TEXTS[:, 0], TEXTS[:, 1]]
    rows = torch.stack([first, second, third], dim=1)
    return rows / rows.sum(-1, keepdim=True)


Q_TEXTS = source(0)
CONDITIONALS = conditionals(Q_TEXTS)


def string_law(p: Tensor, order) -> Tensor:
    """The law of x_1 if texts have the law p and cells are those of the teacher."""
    law = bucket_law(cells(CONDITIONALS, TEXTS, order), M)  # [texts, L, M]
    given_text = torch.stack([law[:, i, STRINGS[:, i]] for i in range(L)]).prod(0)
    return p @ given_text


def kl(p: Tensor, q: Tensor) -> float:
    return float(torch.special.xlogy(p, p / q).sum())


# --------------------------------------------------------------------- law 1


@ORDERS
def test_noise_of_the_teachers_own_texts_is_uniform(order):
    assert torch.allclose(string_law(Q_TEXTS, order), torch.tensor(1 / M**L, dtype=torch.float64), rtol=1e-12)
    assert kl(string_law(source(1), order), torch.full((M**L,), 1 / M**L, dtype=torch.float64)) > 0.01


@ORDERS
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_noise_of_other_texts_is_as_far_from_uniform_as_they_are_from_the_teacher_at_most(order, seed):
    p = source(seed)
    uniform = torch.full((M**L,), 1 / M**L, dtype=torch.float64)
    assert kl(string_law(p, order), uniform) <= kl(p, Q_TEXTS) + 1e-12


@ORDERS
def test_drawn_noise_is_uniform(order):
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(Q_TEXTS, 40_000, replacement=True, generator=generator)
    own = cells(CONDITIONALS[drawn], TEXTS[drawn], order)
    weights = torch.tensor([M**2, M, 1])
    law = torch.full((M**L,), 1 / M**L, dtype=torch.float64)
    index = buckets(numbers(own, generator), M)
    assert p_of_draws((index * weights).sum(1), law) > REJECT
    middles = buckets(own.lower + own.width / 2, M)  # a mutant: the middle of the cell instead of a draw from it
    assert p_of_draws((middles * weights).sum(1), law) < MUTANT


@ORDERS
def test_numbers_draw_the_token_that_they_came_from(order):
    own = cells(CONDITIONALS, TEXTS, order)
    for seed in range(5):
        u = numbers(own, torch.Generator().manual_seed(seed))
        assert torch.equal(token_at(CONDITIONALS, u, order), TEXTS)


def test_streams_give_every_sequence_its_own_numbers():
    own = cells(CONDITIONALS, TEXTS)
    together = numbers(own, Streams.spawn(3, len(TEXTS)))
    alone = numbers(Cells(own.lower[5:6], own.width[5:6]), Streams.spawn(3, 1, 5))
    assert torch.equal(together[5:6], alone)


# --------------------------------------------------------------------- law 2


@ORDERS
@pytest.mark.parametrize("num_masks", [2, 5, 32])
def test_what_is_left_to_chance_is_the_entropy_of_the_token_given_its_mask(order, num_masks):
    probs = CONDITIONALS[:, 1]
    laws = [token_law(probs, torch.full((len(TEXTS),), k), num_masks, order) for k in range(num_masks)]
    entropy = sum(-torch.special.xlogy(law, law).sum(-1) for law in laws) / num_masks
    assert torch.allclose(left_to_chance(probs, num_masks, order), entropy, atol=1e-12)
    # Mutants: cells that lie in another order, and another number of buckets.
    assert not torch.allclose(left_to_chance(probs, num_masks, "id" if order is TABLE else TABLE), entropy, atol=1e-4)
    assert not torch.allclose(left_to_chance(probs, num_masks + 1, order), entropy, atol=1e-4)


def test_what_is_left_to_chance_falls_like_one_over_m():
    probs = torch.rand((50, 30), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    few, many = (float(left_to_chance(probs, num, "id").mean()) for num in (2_000, 20_000))
    assert 8 < few / many < 12


def test_advice_keeps_what_is_left_to_chance_below_what_is_asked():
    advised = advise_quantile_masks(CONDITIONALS, 0.05)
    assert float(left_to_chance(CONDITIONALS, advised).mean()) <= 0.05
    assert float(left_to_chance(CONDITIONALS, advised // 2).mean()) > 0.05


# --------------------------------------------------------------------- law 3


@ORDERS
@pytest.mark.parametrize("num_masks", [2, 4, 7])
def test_from_left_to_right_the_teacher_is_sampled_exactly(order, num_masks):
    every = torch.arange(num_masks).expand(len(TEXTS), L, num_masks)
    laws = token_law(CONDITIONALS[:, :, None].expand(-1, -1, num_masks, -1), every, num_masks, order)
    assert torch.allclose(laws.sum(-1), torch.ones((), dtype=torch.float64), atol=1e-12)
    own = laws.gather(-1, TEXTS[:, :, None, None].expand(-1, -1, num_masks, 1))[..., 0]
    assert torch.allclose(own.mean(-1).prod(-1), Q_TEXTS, rtol=1e-12)
    # A mutant: the most probable token in place of one that is drawn.
    best = (laws.argmax(-1) == TEXTS[:, :, None]).double().mean(-1).prod(-1)
    assert kl(Q_TEXTS, best.clamp_min(1e-9)) > 0.01


# --------------------------------------------------------------------- law 6


@ORDERS
def test_a_prompt_leaves_the_numbers_behind_it_uniform_and_is_completed_exactly(order):
    """Of texts that begin with a: x_1 behind it is uniform and independent, so q( . | a) is what is drawn."""
    law = bucket_law(cells(CONDITIONALS, TEXTS, order), M)
    every = torch.arange(M).expand(len(TEXTS), L, M)
    laws = token_law(CONDITIONALS[:, :, None].expand(-1, -1, M, -1), every, M, order)
    own = laws.gather(-1, TEXTS[:, :, None, None].expand(-1, -1, M, 1))[..., 0]
    for a in range(V):
        begun = TEXTS[:, 0] == a
        given_a = Q_TEXTS[begun] / Q_TEXTS[begun].sum()
        behind = torch.einsum("n,nj,nk->jk", given_a, law[begun, 1], law[begun, 2])
        assert torch.allclose(behind, torch.tensor(1 / M**2, dtype=torch.float64), rtol=1e-12)
        assert torch.allclose(own[begun, 1:].mean(-1).prod(-1), given_a, rtol=1e-12)


@ORDERS
def test_tokens_behind_a_gap_bend_its_numbers(order):
    """So a gap that is filled by uniform numbers follows q(b | a), not q(b | a, c)."""
    law = bucket_law(cells(CONDITIONALS, TEXTS, order), M)
    for a, c in itertools.product(range(V), repeat=2):
        known = (TEXTS[:, 0] == a) & (TEXTS[:, 2] == c)
        given_both = Q_TEXTS[known] / Q_TEXTS[known].sum()
        assert kl(given_both @ law[known, 1], torch.full((M,), 1 / M, dtype=torch.float64)) > 1e-3
        filled = CONDITIONALS[known][0, 1]
        assert float((filled - given_both).abs().sum()) / 2 > 0.01


# ---------------------------------------------------------------- laws 4, 5


def prediction(seed: int, sharp: float = 2.0) -> Tensor:
    """f(a | x_1) at every position for every string: [strings, L, V], not quite what the teacher would say."""
    noise = torch.randn((len(STRINGS), L, V), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (sharp * noise).softmax(-1)


def one_step_law(f: Tensor) -> Tensor:
    """p_1(x_0) of all texts: the mean over strings of the product over positions."""
    return torch.stack([f[:, i][:, TEXTS[:, i]] for i in range(L)]).prod(0).mean(0)


@pytest.mark.parametrize("seed", [0, 1])
def test_one_step_costs_the_drafts_cross_entropy_and_what_a_token_says_of_its_mask(seed):
    """-log p_1(x_0) <= E_Q[-log f] + sum_l (log M - H(Q_l)), with both sides summed over everything there is."""
    f, own = prediction(seed), cells(CONDITIONALS, TEXTS)
    law = bucket_law(own, M)
    weight = torch.stack([law[:, i, STRINGS[:, i]] for i in range(L)]).prod(0)  # [texts, strings]
    cross = -torch.stack([f[:, i][:, TEXTS[:, i]] for i in range(L)]).log().sum(0).T  # [texts, strings]
    draft = (weight * cross).sum(1)
    bound = draft + bucket_information(own, M).sum(1)
    exact = -one_step_law(f).log()
    assert bool((bound >= exact - 1e-12).all())
    assert not bool((draft >= exact - 1e-12).all())  # without its second term it is no bound


def test_a_draft_that_knows_the_texts_pays_the_teachers_price_alone():
    """With many masks and the true tokens predicted, the bound tends to -log q."""
    own = cells(CONDITIONALS, TEXTS)
    nats = -Q_TEXTS.log()
    coarse, fine = (bucket_information(own, num).sum(1) for num in (4, 4_000))
    assert bool((fine <= nats + 1e-9).all())
    assert torch.allclose(fine, nats, atol=0.02)
    assert not torch.allclose(coarse, nats, atol=0.02)


def test_the_probability_of_a_mask_is_an_entry_of_its_law():
    own = cells(CONDITIONALS, TEXTS)
    law = bucket_law(own, M)
    assert torch.allclose(law.sum(-1), torch.ones((), dtype=torch.float64), atol=1e-12)
    for k in range(M):
        assert torch.equal(bucket_probability(own, torch.full_like(TEXTS, k), M), law[..., k])


# -------------------------------------------------------------------- orders


@ORDERS
def test_cells_lie_side_by_side_in_their_order(order):
    ordered = in_order(CONDITIONALS[:, 2], order)
    place = torch.zeros(len(TEXTS), dtype=torch.float64)
    for rank in range(V):
        own = cells(CONDITIONALS[:, 2], ordered.tokens[:, rank].contiguous(), order)
        assert torch.allclose(own.lower, place, atol=1e-12)
        place = own.lower + own.width
    assert torch.allclose(place, torch.ones((), dtype=torch.float64), atol=1e-12)


def test_the_most_probable_token_comes_first_and_equals_by_id():
    probs = torch.tensor([0.2, 0.3, 0.2, 0.3], dtype=torch.float64)
    assert in_order(probs, "probable").tokens.tolist() == [1, 3, 0, 2]
    assert cells(probs, torch.tensor(3), "probable").lower.item() == pytest.approx(0.3)
    assert cells(probs, torch.tensor(0), "probable").lower.item() == pytest.approx(0.6)


def test_similar_tokens_are_neighbours():
    """Points on a curve, shuffled: the order is nearly that along the curve, which a random one is not."""
    generator = torch.Generator().manual_seed(0)
    shuffled = torch.randperm(64, generator=generator)
    angle = shuffled / 64 * math.pi
    points = torch.stack([angle.cos(), angle.sin(), 0 * angle], dim=1) + 5
    rank = similarity_order(points)
    assert sorted(rank.tolist()) == list(range(64))
    along = shuffled[rank.argsort()]
    jumps, random = along.diff().abs().double().mean(), shuffled.diff().abs().double().mean()
    assert jumps < 3 < random / 4


def test_the_laws_of_neighbours_by_counting():
    """Against a count by hand: rows are square roots of laws, rare neighbours are one, absent tokens have none."""
    ids = torch.tensor([[0, 1, 2, 1], [0, 1, 3, 1]])
    after = {0: {1: 1.0}, 1: {2: 0.5, 3: 0.5}, 2: {1: 1.0}, 3: {1: 1.0}}
    before = {1: {0: 2 / 4, 2: 1 / 4, 3: 1 / 4}, 2: {1: 1.0}, 3: {1: 1.0}}
    V = 5
    found = neighbour_laws(ids, V, contexts=V).square().view(V, 2, V + 1)
    order = [1, 0, 2, 3, 4]  # columns by frequency, equals by id
    for side, expected in enumerate((after, before)):
        for a in range(V):
            row = torch.tensor([expected.get(a, {}).get(b, 0.0) for b in order], dtype=torch.float64)
            assert torch.allclose(found[a, side, :V], row, atol=1e-15)
    few = neighbour_laws(ids, V, contexts=2).square().view(V, 2, 3)
    assert few[1, 0].tolist() == pytest.approx([0.0, 0.0, 1.0])  # 2 and 3 are the others
    assert few[1, 1].tolist() == pytest.approx([0.0, 0.5, 0.5])
    with debug_checks(), pytest.raises(ValueError, match="ids must"):
        neighbour_laws(ids, 3)


def test_tokens_of_one_kind_are_neighbours_on_the_line():
    """A source with three kinds of words that follow each other: on the line every kind stands together."""
    generator = torch.Generator().manual_seed(0)
    kind = torch.randperm(30, generator=generator) % 3
    members = torch.stack([(kind == k).nonzero()[:, 0] for k in range(3)])
    columns = [members[place % 3][torch.randint(10, (400,), generator=generator)] for place in range(9)]
    line = similarity_order(neighbour_laws(torch.stack(columns, dim=1), 30)).argsort()
    assert int((kind[line].diff() != 0).sum()) == 2
    assert int((kind[torch.arange(30)].diff() != 0).sum()) > 10  # ids by themselves do not


# --------------------------------------------------------------------- tails


def test_a_large_vocabulary_with_tiny_probabilities():
    generator = torch.Generator().manual_seed(0)
    logits = 12 * torch.randn((3, 50_257), generator=generator, dtype=torch.float64)
    logits[:, 17] = logits.amax(-1) - 69  # about 1e-30
    probs = logits.softmax(-1)
    ids = torch.tensor([17, 17, 50_256])
    own = cells(probs, ids)
    assert 0 < float(own.width.min()) < 1e-29
    assert torch.allclose(own.width, probs.gather(-1, ids[:, None])[:, 0], rtol=1e-12)
    law = bucket_law(own, 256)
    assert bool(law.isfinite().all())
    assert torch.equal(law.sum(-1), torch.ones(3, dtype=torch.float64))
    u = numbers(own, generator)
    assert bool(((u >= 0) & (u < 1)).all())
    index = buckets(u, 256)
    assert bool((bucket_probability(own, index, 256) > 0).all())
    assert torch.allclose(bucket_information(own, 256), torch.full((3,), math.log(256), dtype=torch.float64))
    assert float(left_to_chance(probs, 256).max()) < 1.0


def test_numbers_in_the_last_cell_stay_below_one():
    own = Cells(torch.tensor([1 - 2.0**-53, 0.5]).double(), torch.tensor([2.0**-40, 0.5 + 2.0**-50]).double())
    for seed in range(20):
        u = numbers(own, torch.Generator().manual_seed(seed))
        assert float(u.max()) < 1.0
        assert int(buckets(u, 8).max()) <= 7


# ----------------------------------------------------------------- bad input


def test_a_token_without_a_cell_is_named():
    probs = torch.tensor([[[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"the teacher gives the token at position 0 of sequence 0 probability 0"):
        check_possible(cells(probs, torch.tensor([[2, 1]])), "the teacher")
    check_possible(cells(probs, torch.tensor([[1, 1]])), "the teacher")


def test_one_mask_is_refused():
    with pytest.raises(ValueError, match="num_masks must be at least 2"):
        bucket_law(cells(CONDITIONALS, TEXTS), 1)
    with pytest.raises(ValueError, match="nats must be above 0"):
        advise_quantile_masks(CONDITIONALS, 0.0)


@pytest.mark.unchecked
def test_an_order_of_another_vocabulary_is_refused():
    with pytest.raises(ValueError, match="a place for each of 3 tokens"):
        cells(CONDITIONALS, TEXTS, torch.arange(4))
