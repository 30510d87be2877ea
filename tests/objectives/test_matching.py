"""Matching: costs and assignments against brute force; the laws of texts and noise are kept, and x_1 tells of x_0."""

import math
from itertools import pairwise, permutations

import pytest
import torch
from torch import Tensor

from multimdm.models import LLaDA, LLaDAConfig
from multimdm.models.head import sequence_logits
from multimdm.objectives.matching import assign, close_groups, match_blocks, matching_cost
from multimdm.objectives.settings import MatchingSettings
from multimdm.process import MultiMask
from support.statistics import MUTANT, REJECT, chi_square_p
from support.tiny_models import tiny_dit

V, M, L = 11, 3, 5


def _networks():
    config = LLaDAConfig(
        vocab_size=V,
        mask_rows=(8, 9, 10),
        num_rows=V,
        hidden_dim=16,
        num_blocks=1,
        num_heads=2,
        num_kv_heads=2,
        mlp_dim=16,
        max_length=L,
    )
    torch.manual_seed(0)
    return {"dit": tiny_dit(V, M, L), "llada": LLaDA(config).initialise(0.3).eval()}


NETWORKS = _networks()


def log_probs(network, noise: Tensor) -> Tensor:
    """log f_1(a | x_1), all of it: [n, L, V]."""
    with torch.no_grad():
        return network(noise, torch.ones(len(noise))).log_softmax(-1)


def examples(num_texts: int = 6, num_noise: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    texts = torch.randint(0, 8, (num_texts, L), generator=generator)  # LLaDA's masks are among the tokens
    return texts, MultiMask(V, M).prior((num_noise, L), generator)


def brute_force(network, texts: Tensor, noise: Tensor, valid: Tensor) -> Tensor:
    table = log_probs(network, noise)
    cost = torch.zeros(len(texts), len(noise))
    for i in range(len(texts)):
        for m in range(len(noise)):
            cost[i, m] = -sum(table[m, place, texts[i, place]] for place in range(L) if valid[i, place])
    return cost


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_the_cost_is_minus_the_log_probability_up_to_a_constant_for_each_noise(network):
    texts, noise = examples()
    features = network.features(noise, torch.ones(len(noise)))
    difference = matching_cost(network, features, texts) - brute_force(network, texts, noise, texts >= 0)
    torch.testing.assert_close(difference, difference[:1].expand_as(difference), rtol=1e-5, atol=1e-4)
    assert float(difference[0].std()) > 1e-3, "the constants were not left out, and the test shows nothing"


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_with_padding_the_cost_is_exact(network):
    texts, noise = examples()
    valid = torch.arange(L) < torch.tensor([5, 2, 4, 1, 5, 3])[:, None]
    features = network.features(noise, torch.ones(len(noise)))
    cost = matching_cost(network, features, texts, valid)
    torch.testing.assert_close(cost, brute_force(network, texts, noise, valid), rtol=1e-5, atol=1e-4)


def test_features_may_have_few_digits_and_padding_any_token():
    """LLaDA's weights are in bfloat16; what stands in the place of padding may be a column that is never predicted."""
    network, (texts, noise) = NETWORKS["llada"], examples()
    valid = torch.arange(L) < torch.tensor([5, 2, 4, 1, 5, 3])[:, None]
    features = network.features(noise, torch.ones(len(noise)))
    expected = matching_cost(network, features, texts, valid)
    filled = torch.where(valid, texts, 9)  # a mask's own column
    torch.testing.assert_close(matching_cost(network, features, filled, valid), expected)
    few = matching_cost(_networks()["llada"].bfloat16(), features.bfloat16(), filled, valid)
    torch.testing.assert_close(few, expected, rtol=0.05, atol=0.3)


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_the_exact_assignment_is_the_best_of_all_permutations(n):
    cost = torch.randn(n, n, generator=torch.Generator().manual_seed(n))
    best = min(permutations(range(n)), key=lambda p: sum(float(cost[i, m]) for i, m in enumerate(p)))
    assert assign(cost).tolist() == list(best)


def test_constants_of_rows_and_columns_change_no_assignment():
    generator = torch.Generator().manual_seed(0)
    cost = torch.randn(40, 40, generator=generator)
    other = cost + 3 * torch.randn(40, 1, generator=generator) + 3 * torch.randn(1, 40, generator=generator)
    for solver in ("exact", "greedy"):
        assert torch.equal(assign(cost, solver), assign(other, solver))


def test_the_greedy_assignment_takes_the_best_pair_of_what_is_left():
    cost = torch.randn(30, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    left, expected = cost - cost.mean(0) - cost.mean(1, keepdim=True), {}
    for _ in range(30):
        i, m = divmod(int(left.argmin()), 30)
        expected[i] = m
        left[i], left[:, m] = torch.inf, torch.inf
    assert assign(cost, "greedy").tolist() == [expected[i] for i in range(30)]
    total = {solver: float(cost[range(30), assign(cost, solver)].sum()) for solver in ("exact", "greedy")}
    assert total["exact"] <= total["greedy"] < float(cost.sum()) / 30


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        pytest.param(torch.zeros(3, 4), r"square table.*\[3, 4\]", marks=pytest.mark.unchecked),
        (torch.tensor([[0.0, math.nan], [1.0, 2.0]]), "not a number"),
        (torch.tensor([[0.0, math.inf], [1.0, 2.0]]), "not a number"),
    ],
)
def test_bad_costs(cost, message):
    with pytest.raises(ValueError, match=message):
        assign(cost)


def test_bad_settings():
    with pytest.raises(ValueError, match="group must divide size, 20; got 16"):
        MatchingSettings(size=20, blocks=4)
    MatchingSettings(size=20)  # without blocks there are no groups


# ------------------------------------------------------------------------------------------ blocks


def test_groups_hold_texts_that_can_exchange_their_noise():
    """Two kinds of texts, in any order: noise of one kind is dear to the other."""
    kind = torch.tensor([0, 1, 1, 0, 0, 1, 1, 0])
    noise = torch.rand(8, 8, generator=torch.Generator().manual_seed(0))
    groups = close_groups(noise + 5.0 * (kind[:, None] != kind), 4)
    assert sorted(groups.flatten().tolist()) == list(range(8))
    assert all(len(set(kind[members].tolist())) == 1 for members in groups)


def test_blocks_are_permuted_within_groups_and_cost_no_more():
    generator = torch.Generator().manual_seed(3)
    costs = torch.randn(3, 24, 24, generator=generator)
    whole = assign(costs.sum(0))
    origin = match_blocks(whole, costs, 6)
    assert origin.shape == (24, 3)
    groups = close_groups(costs.sum(0)[:, whole], 6)
    for b in range(3):
        assert sorted(origin[:, b].tolist()) == list(range(24))
        for members in groups:
            assert set(origin[members, b].tolist()) == set(whole[members].tolist())
        assert float(costs[b][range(24), origin[:, b]].sum()) < float(costs[b][range(24), whole].sum())


# ------------------------------------------------------------------ laws, of a predictor that is a table

PLACES, TOKENS, MASKS = 4, 6, 3
PROCESS = MultiMask(TOKENS, MASKS)


class TableHead:
    """f_1(. | x_1) depends on the own mask of each position: what the masks of a trained network come to mean."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        self.weight, self.bias = 2 * torch.randn(TOKENS, MASKS, generator=generator), torch.zeros(TOKENS)

    def features(self, noise: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(noise - TOKENS, MASKS).float()

    def logits(self, features: Tensor) -> Tensor:
        return features @ self.weight.T

    def sequence_logits(self, features: Tensor, tokens: Tensor) -> Tensor:
        return sequence_logits(features, self.weight, self.bias, tokens)


def texts_of(num: int, generator: torch.Generator) -> Tensor:
    """All positions of a text are of one topic: its first half of the tokens, or the second."""
    topic = torch.randint(0, 2, (num, 1), generator=generator)
    return topic * (TOKENS // 2) + torch.randint(0, TOKENS // 2, (num, PLACES), generator=generator)


def matched(n: int, sets: int, blocks: int | None = None, group: int = 8) -> tuple[Tensor, Tensor]:
    """Many texts with their noise."""
    head, generator, pairs = TableHead(), torch.Generator().manual_seed(n), []
    for _ in range(sets):
        texts, noise = texts_of(n, generator), PROCESS.prior((n, PLACES), generator)
        features = head.features(noise)
        width = blocks or PLACES
        places = [slice(first, first + width) for first in range(0, PLACES, width)]
        costs = torch.stack([matching_cost(head, features[:, where], texts[:, where]) for where in places])
        whole = assign(costs.sum(0))
        origin = whole[:, None] if blocks is None else match_blocks(whole, costs, group)
        pairs.append((texts, torch.cat([noise[origin[:, b], where] for b, where in enumerate(places)], 1)))
    texts, noise = (torch.cat(column) for column in zip(*pairs, strict=True))
    return texts, noise - TOKENS


def p_of_pairs(noise: Tensor, one: int, other: int) -> float:
    counts = torch.bincount(noise[:, one] * MASKS + noise[:, other], minlength=MASKS**2)
    return chi_square_p(counts, torch.full((MASKS**2,), 1 / MASKS**2))


def test_matched_noise_is_uniform_at_every_position_and_over_all_pairs_of_them():
    _, noise = matched(64, 300)
    for one in range(PLACES):
        counts = torch.bincount(noise[:, one], minlength=MASKS)
        assert chi_square_p(counts, torch.full((MASKS,), 1 / MASKS)) > REJECT
        for other in range(one):
            assert p_of_pairs(noise, one, other) > REJECT


def test_matched_texts_are_the_data():
    texts, _ = matched(16, 10)
    generator = torch.Generator().manual_seed(16)
    expected = []
    for _ in range(10):
        expected.append(texts_of(16, generator))
        PROCESS.prior((16, PLACES), generator)
    assert torch.equal(texts, torch.cat(expected))


def test_matched_blocks_are_uniform_one_by_one_but_depend_on_each_other():
    """The price of blocks, which is told in the documentation: x_1 is not uniform as a whole."""
    _, noise = matched(64, 300, blocks=2, group=32)
    for one, other in ((0, 1), (2, 3)):  # within a block
        assert p_of_pairs(noise, one, other) > REJECT
    for place in range(PLACES):
        assert chi_square_p(torch.bincount(noise[:, place], minlength=MASKS), torch.full((MASKS,), 1 / MASKS)) > REJECT
    assert min(p_of_pairs(noise, one, other) for one in (0, 1) for other in (2, 3)) < MUTANT


def information(texts: Tensor, noise: Tensor) -> float:
    """The mutual information of the topic's and tokens' first two positions with the noise, from counts, in nats."""
    x = texts[:, 0] * TOKENS + texts[:, 1]
    y = noise[:, 0] * MASKS + noise[:, 1]
    joint = torch.bincount(x * MASKS**2 + y, minlength=TOKENS**2 * MASKS**2).double().view(TOKENS**2, -1)
    joint /= joint.sum()
    independent = joint.sum(1, keepdim=True) * joint.sum(0)
    return float((joint * (joint / independent).log().nan_to_num(0.0, 0.0, 0.0)).sum())


def test_what_the_noise_tells_grows_with_the_number_of_pairs_and_is_at_most_its_logarithm():
    told = {n: information(*matched(n, 16_384 // n)) for n in (2, 4, 16, 128)}
    values = list(told.values())
    assert all(later > 1.2 * earlier for earlier, later in pairwise(values)), told
    assert all(value < math.log(n) for n, value in told.items()), told
