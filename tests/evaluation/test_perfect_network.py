"""The perfect network: exact against lists of all strings and Bayes' rule, and a network like any other."""

import math

import pytest
import torch

from multimdm.data.tales import Tales
from multimdm.evaluation.bootstrap import Bootstrap
from multimdm.evaluation.held_out import validation_times
from multimdm.evaluation.judges import make_judge
from multimdm.evaluation.measurement import draw
from multimdm.evaluation.nelbo import nelbo_sums
from multimdm.evaluation.perfect_models import open_perfect
from multimdm.evaluation.perfect_network import PerfectNetwork
from multimdm.evaluation.settings import Drawing
from multimdm.process import MultiMask, Schedule, Streams, Uniform, random_balanced
from multimdm.samplers.joint import advance, begin
from multimdm.samplers.loop import generate
from multimdm.samplers.settings import Sampling
from multimdm.samplers.steps import step_of
from support.present import present
from support.processes import predicts_posterior
from support.tiny_stories import TINY, listed_posterior

SMALL = Tales(6, TINY)
V, L = SMALL.vocab_size, SMALL.length
EPSILON = 0.01
PROCESSES = {
    "one mask": MultiMask(V, 1),
    "two, rho = 1": MultiMask(V, 2),
    "three, rho = 0.5": MultiMask(V, 3, Schedule(0.5), random_balanced(V, 3)),
    "seven, rho = 2": MultiMask(V, V, Schedule(2.0, "cosine")),
    "context": MultiMask(V, 3, Schedule(0.5), readout="context"),
    "uniform": Uniform(V),
}


def states(process, t, num=3, seed=1):
    """Noised stories, and one state that no story leads to."""
    x_t = process.corrupt(SMALL.sample(num, torch.Generator().manual_seed(seed)), t, Streams.spawn(seed, num))
    x_t[-1, :2] = torch.tensor([2, 2])
    return x_t


@pytest.mark.parametrize("t", [0.4, 1.0])
@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_predictions_are_those_of_all_strings(process, t):
    """Posteriors for masks; for uniform states and masks that the process reads, what all other positions tell."""
    x_t, time = states(process, t), torch.tensor(t, dtype=torch.float64)
    found = PerfectNetwork(SMALL, process, EPSILON)(x_t, t)
    likelihood = process.marginal(torch.arange(V), time).T[x_t]
    hidden = process.active(x_t)
    if t == 1:  # visible tokens cannot occur there; they are taken for what they are
        likelihood[~hidden] = torch.nn.functional.one_hot(x_t[~hidden], V).double()
    expected = listed_posterior(SMALL, likelihood, EPSILON, leave_out=not predicts_posterior(process))
    torch.testing.assert_close(found.exp(), expected.exp(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.logsumexp(-1), torch.zeros(x_t.shape, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("t", [0.3, 0.9])
def test_predictions_given_the_noise_are_those_of_all_strings(t):
    process = MultiMask(V, 3, Schedule(0.5)).tied(noise_shown=True)
    clean, end = SMALL.sample(3, torch.Generator().manual_seed(2)), process.prior((3, L), Streams.spawn(5, 3))
    path = process.path_to(end)
    x_t = path.corrupt(clean, t, Streams.spawn(6, 3))
    given = torch.zeros_like(x_t, dtype=torch.bool)
    given[0, :2] = True
    x_t[0, :2] = clean[0, :2]
    v = process.schedule(torch.tensor(t, dtype=torch.float64))
    home = process.designated_mask(torch.arange(V))
    tokens = (torch.arange(V) == x_t[..., None]).double()
    masks = v.beta * (home == x_t[..., None]).double() + (1 - v.beta) * (x_t == end)[..., None].double()
    expected = listed_posterior(SMALL, v.alpha * tokens + (1 - v.alpha) * masks, EPSILON)
    found = PerfectNetwork(SMALL, process, EPSILON)(path.shown(x_t, given), t)
    torch.testing.assert_close(found.exp(), expected.exp(), rtol=1e-10, atol=1e-12)


def test_with_one_mask_time_tells_nothing():
    network, x_t = PerfectNetwork(SMALL, PROCESSES["one mask"]), states(PROCESSES["one mask"], 0.6)
    at_first = network(x_t, 0.9)
    assert torch.equal(network(x_t, torch.tensor([0.2, 0.5, 0.7])), at_first)
    assert torch.equal(network(x_t), at_first)
    several = PerfectNetwork(SMALL, PROCESSES["three, rho = 0.5"])
    with pytest.raises(ValueError, match="t must be given"):
        several(x_t)


def test_it_is_called_like_any_network():
    process = PROCESSES["three, rho = 0.5"]
    network, x_t = PerfectNetwork(SMALL, process), states(process, 0.8)
    t = torch.tensor([0.8, 0.3, 0.5], dtype=torch.float64)
    whole, positions = network(x_t, t), process.active(x_t)
    for row in range(3):
        torch.testing.assert_close(network(x_t[row : row + 1], float(t[row]))[0], whole[row])
    assert torch.equal(network(x_t, t, positions), whole[positions])
    best, rows = network(x_t, t, positions, None, lambda logits, rows: (logits.argmax(-1), rows))
    assert torch.equal(best, whole[positions].argmax(-1))
    assert rows == slice(0, int(positions.sum()))
    assert torch.equal(network.logits(network.features(x_t, t, positions)), whole[positions])


def test_of_padding_nothing_is_known():
    """The beginnings of stories, padded or short: what follows is summed out."""
    process = PROCESSES["three, rho = 0.5"]
    network, x_t, t = PerfectNetwork(SMALL, process, EPSILON), states(process, 0.8), torch.tensor(0.8).double()
    valid = (torch.arange(L) < 4).expand(3, L)
    likelihood = process.marginal(torch.arange(V), t).T[x_t].where(valid[..., None], 1.0)
    expected = listed_posterior(SMALL, likelihood, EPSILON)[:, :4].exp()
    torch.testing.assert_close(network(x_t, t, valid=valid)[:, :4].exp(), expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(network(x_t[:, :4], t).exp(), expected, rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="sequences may be 6 long at most"):
        network(torch.zeros(1, 7, dtype=torch.long), 0.5)


def nelbo_and_truth(network, process):
    ids = SMALL.sample(3000, torch.Generator().manual_seed(8))
    sums = nelbo_sums(network, process, ids, None, validation_times(3000, 2, seed=3), Streams.spawn(4, 3000))
    return sums.estimate(process), float(-SMALL.log_prob(ids, EPSILON).mean()) / L


NELBOS = {**PROCESSES, "tied": MultiMask(V, 3, Schedule(0.5)).tied(noise_shown=True)}


@pytest.mark.parametrize("process", NELBOS.values(), ids=NELBOS)
def test_the_bound_is_tight(process):
    """In continuous time the exact posterior loses nothing: the NELBO of a text is its -log p."""
    nelbo, truth = nelbo_and_truth(PerfectNetwork(SMALL, process, EPSILON), process)
    assert nelbo.standard_error < 0.04
    assert abs(nelbo.total - truth) < 4 * nelbo.standard_error


def test_evidence_of_another_process_is_found_out():
    process, other = (MultiMask(V, 2, Schedule(rho)) for rho in (0.25, 4.0))
    nelbo, truth = nelbo_and_truth(PerfectNetwork(SMALL, other, EPSILON), process)
    assert nelbo.total - truth > 6 * nelbo.standard_error


@pytest.mark.parametrize("order", ["ancestral", "confidence", "left_to_right"])
def test_samplers_take_it_alone_and_together(order):
    """The loop and shared calls make the same stories, at any temperature; given tokens stay."""
    process = PROCESSES["three, rho = 0.5"]
    network, step = PerfectNetwork(SMALL, process), step_of(process, Sampling(steps=3, order=order, temperature=0.8))
    given, fixed = SMALL.sample(2, torch.Generator().manual_seed(1)), torch.zeros(2, L, dtype=torch.bool)
    fixed[:, :2] = True
    alone = generate(network, process, step, given, fixed, generator=Streams.spawn(7, 2)).ids
    drafts = begin(process, given, ~fixed, step, 7)
    for _ in range(3):
        drafts = [one.draft for one in advance(network, process, drafts)]
    assert torch.equal(torch.stack([draft.x for draft in drafts]), alone)
    assert torch.equal(alone[:, :2], given[:, :2])


@pytest.mark.parametrize(("name", "steps", "expected"), [("perfect", 2, 213), ("perfect:M=20,rho=0.5", 4, 18.9)])
def test_perplexities_are_those_that_are_known(name, steps, expected):
    """By another implementation, with 64 samples of its own: both have their error."""
    model = open_perfect(name)
    ids = draw(model, steps, 1.0, Drawing(num=64)).ids
    found = present(make_judge("tales", model, 48).score(ids, None).gen_ppl(Bootstrap(64)))
    error = math.log(present(found.high) / present(found.low)) / (2 * 1.96)
    assert abs(math.log(found.value / expected)) < 4 * math.sqrt(2) * error
    assert error < 0.15


def test_other_processes_are_refused():
    with pytest.raises(ValueError, match="process must have the 7 tokens of Tales; got 9"):
        PerfectNetwork(SMALL, MultiMask(9, 2))
