"""Recall in one step against sums over all noise strings of a tiny state space."""

import itertools
import math

import pytest
import torch

from multimdm.data.prepared import Example
from multimdm.evaluation.real_text import RealText
from multimdm.evaluation.recall import has_recall, log_probs_given_noise, one_step_log_probs, one_step_recall
from multimdm.models import show_noise
from multimdm.pipeline import Model
from multimdm.process import MultiMask, Process, Schedule, Uniform
from multimdm.samplers import Ancestral, Choice, generate, time_grid
from support.statistics import REJECT, chi_square_p
from support.tiny_models import causal_tales_model, tiny_dit

V, M, L = 4, 3, 3
TEXTS = torch.tensor(list(itertools.product(range(V), repeat=L)))


def model(kind: str) -> Model:
    network = tiny_dit(V, 0 if kind == "uniform" else M, L)
    if kind == "uniform":
        return Model(network, Uniform(V, Schedule()), None)
    if kind == "masks":
        return Model(network, MultiMask(V, M), None)
    network = show_noise(network)
    with torch.no_grad():
        network.vocab_embed.embedding.normal_(0.0, 0.5, generator=torch.Generator().manual_seed(1))
    return Model(network.eval(), MultiMask(V, M).tied(noise_shown=True), None)


def exact(subject: Model, temperature: float) -> torch.Tensor:
    """p(text), by a sum over all noise strings."""
    process = subject.process
    first, num = (0, V) if isinstance(process, Uniform) else (V, M)
    strings = torch.tensor(list(itertools.product(range(first, first + num), repeat=L)))
    assert isinstance(process, Process)
    shown = process.path_to(strings).shown(strings)
    with torch.no_grad():
        logits = subject.network(shown, torch.ones(len(strings), dtype=torch.float64)).double()
    probs = (logits / temperature).softmax(-1)
    each = torch.stack([probs[:, place, TEXTS[:, place]] for place in range(L)]).prod(0)  # [strings, texts]
    return each.mean(0)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("kind", ["masks", "tied", "uniform"])
def test_it_is_a_law_and_comes_near_the_exact_one(kind, temperature):
    subject = model(kind)
    found = one_step_log_probs(subject, TEXTS, None, strings=4000, temperature=temperature).exp()
    assert float(found.sum()) == pytest.approx(1.0, abs=1e-9)
    wanted = exact(subject, temperature)
    assert float((found - wanted).abs().sum() / 2) < 0.02  # 4,000 draws of few strings: 0.01 is to be expected
    assert float((found - 1 / len(TEXTS)).abs().sum() / 2) > 0.2, "the law must be far from uniform"


@pytest.mark.parametrize("kind", ["masks", "tied", "uniform"])
def test_it_is_the_law_of_samples_in_one_step(kind):
    subject, num = model(kind), 20_000
    step = Ancestral(time_grid("uniform", 1), Choice(temperature=0.8))
    given = torch.zeros((num, L), dtype=torch.long)
    assert isinstance(subject.process, MultiMask | Uniform)
    ids = generate(subject.network, subject.process, step, given, generator=torch.Generator().manual_seed(0)).ids
    counts = torch.bincount((ids * torch.tensor([V * V, V, 1])).sum(1), minlength=len(TEXTS))
    assert chi_square_p(counts, exact(subject, 0.8)) > REJECT
    assert chi_square_p(counts, exact(subject, 1.0)) < REJECT


class Text(RealText):
    """Two texts, of which the second has padding."""

    name = fingerprint = "text"
    ids = torch.tensor([[0, 1, 2], [3, 1, 0]])
    valid = torch.tensor([[True, True, True], [True, False, False]])

    def take(self, num: int) -> Example:
        return Example(self.ids[:num], self.valid[:num])


@pytest.mark.parametrize("kind", ["masks", "tied", "uniform"])
def test_padding_may_be_anything_and_nats_are_per_token_of_text(kind):
    subject, text, strings = model(kind), Text(), 200
    law = one_step_log_probs(subject, TEXTS, None, strings, temperature=0.7)
    begins = TEXTS[:, 0] == 3
    found = one_step_log_probs(subject, text.ids, text.valid, strings, temperature=0.7)
    assert float(found[1]) == pytest.approx(float(law[begins].logsumexp(0)), abs=1e-9)
    assert float(found[0]) == pytest.approx(float(law[0 * V * V + 1 * V + 2]), abs=1e-9)
    recall = one_step_recall(subject, text, 2, strings, temperature=0.7)
    assert recall.nats.value == pytest.approx(float(-found.sum()) / 4)
    assert recall.nats.low is not None
    assert recall.nats.high is not None
    assert recall.nats.low < recall.nats.value < recall.nats.high
    assert (recall.temperature, recall.sequences, recall.strings) == (0.7, 2, strings)


def test_how_many_strings_run_at_once_changes_nothing(monkeypatch):
    subject = model("tied")
    noise = MultiMask(V, M).prior((7, L), torch.Generator().manual_seed(0))
    at_once = log_probs_given_noise(subject, TEXTS, None, noise)
    monkeypatch.setattr("multimdm.evaluation.recall._LOGITS", 2 * V * L)
    torch.testing.assert_close(log_probs_given_noise(subject, TEXTS, None, noise), at_once, rtol=0, atol=1e-5)


def test_with_one_mask_there_is_one_string():
    """And nothing to average over."""
    subject = Model(tiny_dit(V, 1, L), MultiMask(V, 1), None)
    one, many = (one_step_log_probs(subject, TEXTS, None, strings) for strings in (1, 40))
    assert torch.allclose(one, many, atol=1e-6)
    assert float(one.logsumexp(0)) == pytest.approx(math.log(1.0), abs=1e-9)


def test_what_has_no_such_probability():
    with pytest.raises(ValueError, match="recall in one step is for models of a discrete process"):
        one_step_log_probs(causal_tales_model(), TEXTS, None, 1)
    with pytest.raises(ValueError, match="temperature must be positive"):
        one_step_log_probs(model("masks"), TEXTS, None, 1, temperature=0.0)
    with pytest.raises(ValueError, match="strings must be at least 1; got 0"):
        one_step_log_probs(model("masks"), TEXTS, None, 0)
    assert not has_recall(causal_tales_model())
    assert all(has_recall(model(kind)) for kind in ("masks", "tied", "uniform"))
