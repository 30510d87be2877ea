"""Every sampler reads own masks exactly once: a network of contexts under a process that reads them draws, number by
number, what a network that has read them draws under one that takes its predictions for posteriors."""

import pytest
import torch
from torch import Tensor

from multimdm.process import MultiMask, Process, Schedule, Streams, Time
from multimdm.samplers import Ancestral, Batch, Choice, Confidence, LeftToRight, ask, generate, time_grid
from multimdm.samplers.joint import advance, begin
from multimdm.samplers.steps import AnyStep

V, M, L, B = 11, 4, 9, 40
PLAIN, READ = (MultiMask(V, M, Schedule(rho=0.7), readout=readout) for readout in ("posterior", "context"))


class Contexts:
    """Logits by a table of sums over the other positions; with `told`, the evidence of the own mask is in them."""

    def __init__(self, told: bool) -> None:
        self.told = told
        self.table = torch.randn(V + M, L, V, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def features(self, x: Tensor, t: Time, positions: Tensor, valid: Tensor | None) -> Tensor:
        each = self.table[x, torch.arange(L)]
        logits = each.sum(1, keepdim=True) - each
        if self.told:
            logits = READ.posterior_logits(logits, x, t)
        return logits[positions]

    def logits(self, features: Tensor) -> Tensor:
        return features

    def __call__(self, x, t, positions, valid=None, reduce=None):
        logits = self.features(x, t, positions, valid)
        assert reduce is not None
        return reduce(logits, slice(0, len(logits)))


def given() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, V, (B, L), generator=generator), torch.rand(B, L, generator=generator) < 0.2


def made(network: Contexts, process: Process, step: AnyStep) -> Tensor:
    tokens, fixed = given()
    return generate(network, process, step, tokens, fixed, generator=Streams.spawn(3, B)).ids


GRID = time_grid("uniform", 4)
STEPS = {
    "ancestral": Ancestral(GRID),
    "one step": Ancestral((1.0, 0.0)),
    "greedy last": Ancestral(GRID, greedy_last=True),
    "corrector": Ancestral(GRID, corrector=0.3),
    "confidence": Confidence(4),
    "threshold": Confidence(6, threshold=0.5),
    "postponed": Confidence(4, late=(0, 1)),
    "guidance": Confidence(4, guidance=0.8),
    "left to right": LeftToRight(5, threshold=0.4),
    "excluded": Ancestral(GRID, Choice(never=(2, 3))),
}
ALL = pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)


@ALL
def test_at_temperature_one_it_does_not_matter_who_reads_the_mask(step):
    assert torch.equal(made(Contexts(told=False), READ, step), made(Contexts(told=True), PLAIN, step))


@ALL
def test_to_read_it_twice_or_never_would_matter(step):
    if step == STEPS["one step"]:
        return  # at t = 1 masks tell nothing
    right = made(Contexts(told=False), READ, step)
    assert not torch.equal(made(Contexts(told=True), READ, step), right)
    assert not torch.equal(made(Contexts(told=False), PLAIN, step), right)


CHOICES = {"cool": Choice(0.5), "warm and cut": Choice(1.4, 0.8, 5), "greedy": Choice(0)}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("kind", [lambda choice: Ancestral(GRID, choice), lambda choice: Confidence(4, choice)])
def test_a_temperature_on_the_posterior_is_the_papers(kind, choice):
    on_posterior = Choice(choice.temperature, choice.top_p, choice.top_k, on="posterior")
    right = made(Contexts(told=True), PLAIN, kind(choice))
    assert torch.equal(made(Contexts(told=False), READ, kind(on_posterior)), right)
    assert not torch.equal(made(Contexts(told=False), READ, kind(choice)), right)
    assert torch.equal(made(Contexts(told=True), PLAIN, kind(on_posterior)), right)


def test_confidence_is_the_posterior_probability():
    tokens, fixed = given()
    x = torch.where(fixed, tokens, READ.prior((B, L), Streams.spawn(0, B)))
    batch = Batch(x, ~fixed, generator=Streams.spawn(1, B))
    positions = READ.active(x) & ~fixed
    clean, confidence = ask(READ, batch, 0.4, Choice(0.5), confidence=True).put_to(Contexts(told=False))
    assert confidence is not None
    exact = Contexts(told=True).features(x, 0.4, positions, None).softmax(-1)
    torch.testing.assert_close(confidence[positions], exact.gather(1, clean[positions][:, None])[:, 0])


def test_what_a_trace_shows_is_the_posterior():
    tokens, fixed = given()
    shown = []
    for told, process in ((False, READ), (True, PLAIN)):
        drafts = begin(process, tokens[:2], ~fixed[:2], Ancestral(GRID), seed=0)
        network = Contexts(told)
        for _ in range(2):
            advanced = advance(network, process, drafts, top=3)
            drafts = [one.draft for one in advanced]
        shown.append(advanced[0].top)
    assert torch.equal(shown[0].ids, shown[1].ids)
    torch.testing.assert_close(shown[0].probs, shown[1].probs)
