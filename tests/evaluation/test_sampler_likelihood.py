"""The exact likelihood of samplers: it sums to one, and samples follow it."""

import itertools

import pytest
import torch

from multimdm.data.tales import Tales
from multimdm.evaluation.perfect_models import open_perfect
from multimdm.evaluation.perfect_network import PerfectNetwork
from multimdm.evaluation.real_text import real_text
from multimdm.evaluation.sampler_likelihood import evaluate_sampler_likelihood, sampler_log_likelihood
from multimdm.process import MultiMask, Schedule, Streams
from multimdm.samplers import Ancestral, Choice, Confidence, LeftToRight, generate, time_grid
from support.statistics import MUTANT, REJECT, p_of_draws

V, L = 3, 4
PROCESS = MultiMask(V, 1)
TEXTS = torch.tensor(list(itertools.product(range(V), repeat=L)))
"""All there are, in the order of their numbers in base V."""


class Table:
    """Logits at a position depend on all states and on the time, in float64."""

    def __init__(self, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = V + 1, L, L, V
        self.pairs, self.slope = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))

    def __call__(self, x, t, positions, valid, reduce):
        place = torch.arange(L)
        logits = self.pairs[x, place].sum(1) + t[:, None, None] * self.slope[x, place].sum(1)
        packed = logits[positions]
        cut = len(packed) // 2
        parts = [reduce(packed[rows], rows) for rows in (slice(0, cut), slice(cut, len(packed)))]
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))


STEPS = {
    "one by one": Confidence(4, remasking="low_certainty"),
    "two calls": Confidence(2, remasking="low_certainty"),
    "one call": Confidence(1, remasking="low_certainty"),
    "uneven": Confidence(3, remasking="low_certainty"),
    "blocks": Confidence(3, block_length=2, remasking="low_certainty"),
    "threshold": Confidence(4, threshold=0.6, remasking="low_certainty"),
    "cold": Confidence(2, Choice(0.5), remasking="low_certainty"),
    "top-k": Confidence(3, Choice(top_k=2), remasking="low_certainty"),
    "never": Confidence(3, Choice(never=(1,)), remasking="low_certainty"),
    "late": Confidence(3, remasking="low_certainty", late=(0,)),
    "left to right": LeftToRight(4, threshold=1),
    "runs": LeftToRight(2, threshold=1),
}
ALL = pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)


@ALL
def test_it_sums_to_one(step):
    total = sampler_log_likelihood(Table(), PROCESS, step, TEXTS).exp().sum()
    torch.testing.assert_close(total, torch.tensor(1.0, dtype=torch.float64), rtol=0, atol=1e-12)


@ALL
def test_samples_follow_it(step):
    law = sampler_log_likelihood(Table(), PROCESS, step, TEXTS).exp()
    assert p_of_draws(numbers(step), law) > REJECT


def test_an_order_that_follows_what_is_drawn_has_another_law():
    """Which is why the usual low-confidence order is refused."""
    step = STEPS["two calls"]
    law = sampler_log_likelihood(Table(), PROCESS, step, TEXTS).exp()
    assert p_of_draws(numbers(Confidence(2)), law) < MUTANT


def numbers(step) -> torch.Tensor:
    """Of texts that the sampler makes."""
    num = 8_000
    empty = torch.zeros(num, L, dtype=torch.long)
    made = generate(Table(), PROCESS, step, empty, generator=Streams.spawn(3, num)).ids
    return (made * V ** torch.arange(L - 1, -1, -1)).sum(1)


def test_by_hand():
    """Left to right, one by one, it is the chain rule."""
    text, network = torch.tensor([[2, 0, 1, 1]]), Table(1)
    wanted = torch.zeros((), dtype=torch.float64)
    for place in range(L):
        x = torch.where(torch.arange(L) < place, text, V)
        at = torch.arange(L)[None] == place
        t = torch.tensor([1 - place / L], dtype=torch.float64)
        (logits,) = network(x, t, at, None, lambda logits, _: (logits,))
        wanted += logits.log_softmax(-1)[0, text[0, place]]
    found = sampler_log_likelihood(network, PROCESS, LeftToRight(L, threshold=1), text)
    torch.testing.assert_close(found[0], wanted, rtol=0, atol=1e-12)


def test_given_tokens_are_conditions():
    """p(rest | given) sums to one over the rest, and padding is not looked at."""
    step = STEPS["two calls"]
    given = torch.tensor([False, True, False, False]).expand(len(TEXTS), L)
    probs = sampler_log_likelihood(Table(), PROCESS, step, TEXTS, given).exp()
    for token in range(V):
        torch.testing.assert_close(probs[TEXTS[:, 1] == token].sum(), probs.new_ones(()), rtol=0, atol=1e-12)
    valid = torch.tensor([True, True, True, False]).expand(len(TEXTS), L)
    probs = sampler_log_likelihood(Table(), PROCESS, step, TEXTS, valid=valid).exp()
    for token in range(V):
        torch.testing.assert_close(probs[TEXTS[:, 3] == token].sum(), probs.new_ones(()), rtol=0, atol=1e-12)


def test_the_perfect_network_of_tales_one_by_one_is_the_source():
    """In whatever order, by the chain rule."""
    tales, step = Tales(), Confidence(48, remasking="low_certainty")
    stories = tales.sample(1, generator=torch.Generator().manual_seed(1))
    process = MultiMask(tales.vocab_size, 1)
    found = sampler_log_likelihood(PerfectNetwork(tales, process), process, step, stories)
    torch.testing.assert_close(found, tales.log_prob(stories).double(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "step",
    [
        Confidence(2),
        Confidence(2, remasking="random"),
        Confidence(2, remasking="low_certainty", guidance=1.0),
        LeftToRight(2),
        Ancestral(time_grid("uniform", 2)),
    ],
)
def test_other_orders_are_refused(step):
    with pytest.raises(ValueError, match="if its order does not depend on what is drawn"):
        sampler_log_likelihood(Table(), PROCESS, step, TEXTS)


@pytest.mark.parametrize("process", [MultiMask(V, 2), MultiMask(V, 1, Schedule()).tied()])
def test_other_processes_are_refused(process):
    with pytest.raises(ValueError, match="exact likelihood"):
        sampler_log_likelihood(Table(), process, STEPS["one call"], TEXTS)


def test_held_out_text():
    """Nats per token over all sequences, whatever the batch size, and above the entropy of the source."""
    model = open_perfect("perfect:")
    text = real_text("tales", model, None)
    options = {"order": "left_to_right", "steps": 3, "sequences": 3}
    found = evaluate_sampler_likelihood(model, text, batch_size=2, **options)
    assert found == evaluate_sampler_likelihood(model, text, batch_size=64, **options)
    ids = text.take(3).ids
    step = LeftToRight(3, threshold=1)
    assert isinstance(model.process, MultiMask)
    nats = -sampler_log_likelihood(model.network, model.process, step, ids).sum() / ids.numel()
    assert found.nats.value == pytest.approx(float(nats), abs=1e-12)
    assert (found.sequences, found.tokens) == (3, ids.numel())
    assert found.source == pytest.approx(-float(Tales().log_prob(ids, epsilon=0).sum()) / ids.numel(), abs=1e-12)
    assert found.source is not None
    assert found.nats.value > found.source, "three steps pay for what they decide together"
    assert text.nats_per_token is not None
    assert found.nats.value > text.nats_per_token
