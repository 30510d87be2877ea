"""One step from quantile noise against sums over all texts and all strings of a tiny space."""

import itertools
import math
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from multimdm.evaluation.one_step import OneStep
from multimdm.process import Mixture, MultiMask, Streams
from multimdm.process.quantile import Cells, bucket_information, bucket_law, cells
from support.statistics import MUTANT, REJECT

V, M, L = 4, 4, 3
TEXTS = torch.tensor(list(itertools.product(range(V), repeat=L)))
STRINGS = torch.tensor(list(itertools.product(range(M), repeat=L)))
PLACES = torch.tensor([M * M, M, 1])
SHOWN = pytest.mark.parametrize(
    "process", [MultiMask(V, M).tied(shown) for shown in (True, False)], ids=["noise shown", "noise not shown"]
)
PROCESS = MultiMask(V, M).tied(noise_shown=True)


def random(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


TEACHER = (0.7 * random((len(TEXTS), L, V), 0)).softmax(-1)
"""q(. | x^{<l}) of every text. That it is no function of the prefix does not matter to anything here."""
CELLS = cells(TEACHER, TEXTS)
LOGITS = random((len(STRINGS), L, V), 1) + 2 * torch.nn.functional.one_hot(STRINGS, V)
"""What the network says of every string: bucket k is near the cell of token k, and it has learnt a little of that."""


class Network:
    """Called by the contract, at t = 1, with nothing but noise; it cuts its rows as it likes."""

    def __init__(self, logits: Tensor = LOGITS) -> None:
        self.logits = logits

    def __call__(self, x_t: Tensor | Mixture, t: Tensor, positions: Tensor, valid: Tensor | None, reduce: Any) -> Any:
        state = x_t
        if isinstance(x_t, Mixture):
            assert bool((x_t.weights == 1).all())
            state = x_t.ids[..., 0]
            assert torch.equal(x_t.ids[..., 1], state + M)
        assert isinstance(state, Tensor)
        assert torch.equal(t, torch.ones(len(state), dtype=torch.float64))
        rows = self.logits[((state - V) * PLACES).sum(1)][positions]
        cut = len(rows) // 3
        return torch.cat([reduce(rows[part], part) for part in (slice(0, cut), slice(cut, len(rows)))])


def log_probs(temperature: float = 1.0, valid: Tensor | None = None) -> Tensor:
    """sum_l log f(x_0^l | x_1): [texts, strings]."""
    f = (LOGITS / temperature).log_softmax(-1)
    each = torch.stack([f[:, place][:, TEXTS[:, place]] for place in range(L)], dim=-1)  # [strings, texts, L]
    return (each if valid is None else each * valid).sum(-1).T


def string_law(own: Cells = CELLS) -> Tensor:
    """Q(x_1 | x_0): [texts, strings]."""
    law = bucket_law(own, M)
    return torch.stack([law[:, place, STRINGS[:, place]] for place in range(L)]).prod(0)


def exact(temperature: float = 1.0) -> Tensor:
    """p_1 of all texts."""
    return log_probs(temperature).exp().mean(1)


def repeated(num: int, texts: slice = slice(None)) -> tuple[Tensor, Cells]:
    """Every text so many times, one after the other."""
    ids, lower, width = (rows[texts].repeat_interleave(num, 0) for rows in (TEXTS, *CELLS))
    return ids, Cells(lower, width)


def test_it_is_a_law():
    assert float(exact().sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(exact().max() / exact().min()) > 2


@SHOWN
def test_the_probability_given_a_string_is_the_product_over_positions(process):
    valid = torch.arange(L) < torch.arange(len(TEXTS))[:, None] % L + 1
    for number in range(0, len(STRINGS), 5):
        noise = (V + STRINGS[number]).expand(len(TEXTS), L)
        found = OneStep(Network(), process, TEXTS).log_prob_given(noise)
        torch.testing.assert_close(found, log_probs()[:, number], rtol=1e-12, atol=0)
        colder = OneStep(Network(), process, TEXTS).log_prob_given(noise, temperature=0.5)
        torch.testing.assert_close(colder, log_probs(0.5)[:, number], rtol=1e-12, atol=0)
        padded = OneStep(Network(), process, TEXTS, valid).log_prob_given(noise)
        torch.testing.assert_close(padded, log_probs(valid=valid)[:, number], rtol=1e-12, atol=0)


# ----------------------------------------------------------------- the bound


@SHOWN
@pytest.mark.parametrize("text", [0, 11, 61])
def test_the_bound_is_the_closed_form(process, text):
    """Its second term exactly, and its first up to the error of 6,000 draws; noise from the prior has another mean."""
    num = 6000
    ids, own = repeated(num, slice(text, text + 1))
    draft, told, squares, *_, tokens, sequences = (
        OneStep(Network(), process, ids).bound(own, Streams.spawn(1, num)).values.tolist()
    )
    assert (tokens, sequences) == (num * L, num)
    assert told / num == pytest.approx(float(bucket_information(CELLS, M)[text].sum()), rel=1e-9)
    expected = -float((string_law()[text] * log_probs()[text]).sum())
    error = math.sqrt(squares / num - ((draft + told) / num) ** 2) / math.sqrt(num)
    assert abs(draft / num - expected) < 4.5 * error
    prior = -float(log_probs()[text].mean())
    assert abs(draft / num - prior) > 20 * error


def test_the_bound_is_above_the_exact_value():
    closed = -(string_law() * log_probs()).sum(1) + bucket_information(CELLS, M).sum(1)
    slack = closed + exact().log()
    assert bool((slack > 0).all())
    # The slack is the divergence of Q from what x_1 is given x_0.
    posterior = log_probs().exp() / log_probs().exp().sum(1, keepdim=True)
    divergence = torch.special.xlogy(string_law(), string_law() / posterior).sum(1)
    torch.testing.assert_close(slack, divergence, rtol=1e-9, atol=1e-12)
    sums = OneStep(Network(), PROCESS, TEXTS).bound(CELLS, Streams.spawn(2, len(TEXTS)), draws=100)
    assert sums.estimate().total * L * len(TEXTS) == pytest.approx(float(closed.sum()), rel=0.01)
    without = sums.estimate().reconstruction * L * len(TEXTS)
    assert without < -float(exact().log().sum()), "without what tokens say of their masks it is no bound"


def test_more_draws_are_the_mean_of_their_bounds():
    one, two = (
        OneStep(Network(), PROCESS, TEXTS).bound(CELLS, Streams.spawn(3, len(TEXTS)), draws).values for draws in (1, 2)
    )
    streams = Streams.spawn(3, len(TEXTS))
    first, second = (OneStep(Network(), PROCESS, TEXTS).bound(CELLS, streams).values for _ in range(2))
    assert torch.equal(first, one)
    assert float(two[0]) == pytest.approx(float(first[0] + second[0]) / 2, rel=1e-12)
    assert float(two[1]) == pytest.approx(float(first[1]), rel=1e-12)


def test_padding_costs_nothing():
    valid = torch.arange(L) < torch.arange(len(TEXTS))[:, None] % L + 1
    own = Cells(CELLS.lower.where(valid, 0.0), CELLS.width.where(valid, 1.0))
    sums = OneStep(Network(), PROCESS, TEXTS, valid).bound(own, Streams.spawn(4, len(TEXTS)), draws=100).estimate()
    assert (sums.sequences, sums.tokens) == (len(TEXTS), int(valid.sum()))
    told = float(bucket_information(CELLS, M)[valid].sum())
    assert sums.identification * sums.tokens == pytest.approx(told, rel=1e-9)
    draft = -float((string_law(own) * log_probs(valid=valid)).sum())
    assert sums.reconstruction * sums.tokens == pytest.approx(draft, rel=0.02)
    # Cells under padding that are not those of nothing are not looked at in the second term.
    same = OneStep(Network(), PROCESS, TEXTS, valid).bound(CELLS, Streams.spawn(4, len(TEXTS))).estimate()
    assert same.identification == pytest.approx(sums.identification, rel=1e-12)


# -------------------------------------------------------------- the estimate


def drawn(elsewhere: float, temperature: float = 1.0, num: int = 2000) -> Tensor:
    """Single draws of the estimate, of every text: [texts, num]."""
    ids, own = repeated(num)
    streams = Streams.spawn(0, len(ids))
    found = OneStep(Network(), PROCESS, ids).log_prob(own, streams, 1, temperature, elsewhere)
    return found.exp().view(len(TEXTS), num)


def errors(draws: Tensor, wanted: Tensor) -> Tensor:
    """How many standard errors the means are off."""
    return (draws.mean(1) - wanted) / draws.std(1) * math.sqrt(draws.shape[1])


def p_of_means(draws: Tensor, wanted: Tensor) -> float:
    """That they are off by chance alone."""
    return float(stats.chi2.sf(float(errors(draws, wanted).square().sum()), len(draws)))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_estimate_has_no_bias(temperature):
    draws = drawn(0.3, temperature)
    assert p_of_means(draws, exact(temperature)) > REJECT
    assert p_of_means(draws, exact(temperature + 0.3)) < MUTANT


def test_with_the_teachers_strings_alone_the_rest_of_the_mass_is_missed():
    """What is found is the probability over strings of the text's own buckets, and it is less."""
    inside = string_law() > 0
    found = (log_probs().exp() * inside).sum(1) / len(STRINGS)
    assert float((found / exact()).max()) < 0.9
    draws = drawn(elsewhere=0.0)
    torch.testing.assert_close(draws.mean(1), found, rtol=0.2, atol=0)
    assert p_of_means(draws, exact()) < MUTANT


def test_many_draws_come_near_the_exact_value():
    """The logarithm is too low on average, less so with more draws."""
    (ids, own), bias = repeated(20), {}
    for draws in (1, 60):
        streams = Streams.spawn(5, len(ids))
        found = OneStep(Network(), PROCESS, ids).log_prob(own, streams, draws, elsewhere=0.5)
        bias[draws] = float((found.view(-1, 20).mean(1) - exact().log()).mean())
    assert bias[1] < 5 * bias[60] < 0
    assert bias[60] > -0.1


def test_the_mean_is_over_probabilities_not_over_logarithms():
    streams = Streams.spawn(6, len(TEXTS))
    single = torch.stack([OneStep(Network(), PROCESS, TEXTS).log_prob(CELLS, streams, 1) for _ in range(5)])
    together = OneStep(Network(), PROCESS, TEXTS).log_prob(CELLS, Streams.spawn(6, len(TEXTS)), 5)
    torch.testing.assert_close(together, single.logsumexp(0) - math.log(5), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(together, single.mean(0), atol=1e-3)


def test_a_text_does_not_depend_on_its_neighbours():
    together = OneStep(Network(), PROCESS, TEXTS).log_prob(CELLS, Streams.spawn(7, len(TEXTS)), 3)
    own = Cells(CELLS.lower[5:7], CELLS.width[5:7])
    alone = OneStep(Network(), PROCESS, TEXTS[5:7]).log_prob(own, Streams.spawn(7, 2, first=5), 3)
    torch.testing.assert_close(alone, together[5:7], rtol=1e-12, atol=0)


def test_padding_is_summed_over():
    """The probability of the beginning of a text, whatever follows."""
    valid = torch.tensor([True, False, False]).repeat(len(TEXTS), 1)
    own = Cells(CELLS.lower.where(valid, 0.0), CELLS.width.where(valid, 1.0))
    found = OneStep(Network(), PROCESS, TEXTS, valid).log_prob(own, Streams.spawn(8, len(TEXTS)), 60, elsewhere=0.3)
    for first in range(V):  # all texts with the same beginning together: 960 draws
        begins = TEXTS[:, 0] == first
        assert float(found.exp()[begins].mean()) == pytest.approx(float(exact()[begins].sum()), rel=0.1)


def test_bad_input():
    streams = Streams.spawn(0, len(TEXTS))
    with pytest.raises(ValueError, match="temperature must be positive: at 0 texts have no probability; got 0"):
        OneStep(Network(), PROCESS, TEXTS).log_prob(CELLS, streams, 1, temperature=0.0)
    with pytest.raises(ValueError, match="draws must be at least 1; got 0"):
        OneStep(Network(), PROCESS, TEXTS).log_prob(CELLS, streams, 0)
    with pytest.raises(ValueError, match="draws must be at least 1; got 0"):
        OneStep(Network(), PROCESS, TEXTS).bound(CELLS, streams, 0)
