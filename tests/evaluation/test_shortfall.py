"""KL(perfect || network): zero for the perfect one, that of all strings for others, on the states that are visited."""

import pytest
import torch

from multimdm.data.tales import Tales
from multimdm.evaluation.perfect_models import perfect_model
from multimdm.evaluation.perfect_network import PerfectNetwork
from multimdm.evaluation.real_text import TalesText
from multimdm.evaluation.settings import Drawing
from multimdm.evaluation.shortfall import Watched, divergence, falls_short, shortfall_of_sampler, shortfall_on_data
from multimdm.pipeline import Model
from multimdm.process import MultiMask, Schedule, Streams, Uniform
from multimdm.samplers.settings import SamplingRules
from support.tiny_models import TALES, causal_tales_model, shown_tales_model, tales_model, tiny_dit
from support.tiny_stories import TINY, listed_posterior

SMALL = Tales(6, TINY)
V = SMALL.vocab_size
PROCESSES = {"three masks": MultiMask(V, 3, Schedule(0.5)), "uniform": Uniform(V)}


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_it_is_that_of_all_strings(process):
    t = torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64)
    x_t = process.corrupt(SMALL.sample(3, torch.Generator().manual_seed(1)), t, Streams.spawn(2, 3))
    network = tiny_dit(V, process.num_masks, SMALL.length).double()
    watched = Watched(network, PerfectNetwork(SMALL, process, 0.01), process)
    positions = process.active(x_t)
    said = watched(x_t, t, positions, None, lambda logits, rows: logits)
    torch.testing.assert_close(said, network(x_t, t, positions))
    likelihood = torch.stack([process.marginal(torch.arange(V), time).T[row] for time, row in zip(t, x_t, strict=True)])
    exact = listed_posterior(SMALL, likelihood, 0.01)
    logits = network(x_t, t).detach()
    if isinstance(process, Uniform):
        logits = logits + likelihood.log()  # what the other positions tell, and what this one does
    ours = logits.log_softmax(-1)
    nats = ((exact.exp() * (exact - ours)).nan_to_num(0.0).sum(-1) * positions).sum(1)
    torch.testing.assert_close(watched.calls[0][0], nats, rtol=1e-9, atol=1e-9)
    assert watched.calls[0][1].tolist() == positions.sum(1).tolist()
    assert watched.times[0].tolist() == t.tolist()


def test_what_is_impossible_counts_nothing():
    p, q = torch.tensor([[1.0, 0.0]]).log(), torch.tensor([[0.5, 0.5]]).log()
    assert float(divergence(p, q)) == pytest.approx(0.6931472)
    assert float(divergence(q, p)) == float("inf")


@pytest.mark.parametrize("process", [MultiMask(TALES.vocab_size, 20, Schedule(0.5)), Uniform(TALES.vocab_size)])
def test_the_perfect_network_loses_nothing(process):
    model = perfect_model(process, TALES)
    on_data = shortfall_on_data(model, TalesText(TALES), 8)
    sampling = shortfall_of_sampler(model, 2, 1.0, Drawing(num=4))
    for found in (on_data, sampling):
        assert found.nats.value == pytest.approx(0, abs=1e-12)
    assert [at.time for at in sampling.by_time] == [1.0, 0.5]
    times = [at.time for at in on_data.by_time]
    assert times == sorted(times, reverse=True)
    assert len(times) >= 6


@pytest.mark.parametrize("order", ["ancestral", "confidence"])
def test_states_are_those_that_the_sampler_visits(order, monkeypatch):
    model, drawing = tales_model(), Drawing(num=5, batch_size=3, seed=4, law=SamplingRules(order=order))
    asked, original = [], PerfectNetwork.forward
    monkeypatch.setattr(
        PerfectNetwork,
        "forward",
        lambda self, x_t, t, *rest: asked.append((x_t, t)) or original(self, x_t, t, *rest),
    )
    found = shortfall_of_sampler(model, 3, 0.9, drawing)
    trace = model.sample(num=5, steps=3, temperature=0.9, seed=4, batch_size=3, order=order, trace=True).trace
    assert trace is not None
    for k in range(3):
        assert torch.equal(torch.cat([asked[k][0], asked[3 + k][0]]), trace.states[k])
    assert [at.time for at in found.by_time] == pytest.approx(trace.times[:3].mean(1).tolist())
    assert (found.states, found.steps, found.temperature, found.sequences) == ("sampler", 3, 0.9, 5)
    assert found.nats.value > 1
    assert found.nats.low is not None


def test_who_can_be_compared():
    V = TALES.vocab_size
    assert falls_short(tales_model())
    assert falls_short(perfect_model(Uniform(V), TALES))
    others = [shown_tales_model(), causal_tales_model(), Model(tiny_dit(V, 2, 48), MultiMask(V, 2))]
    for model in others:
        assert not falls_short(model)
        with pytest.raises(ValueError, match="models of Tales alone"):
            shortfall_on_data(model, TalesText(TALES), 2)
    with pytest.raises(ValueError, match="guidance must be 0"):
        shortfall_of_sampler(tales_model(), 2, 1.0, Drawing(num=2, law=SamplingRules(order="confidence", guidance=1.0)))
