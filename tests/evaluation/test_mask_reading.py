"""What masks tell: nothing to who cannot tell them apart, much to who reads them, and the closed form in between."""

import pytest
import torch

from multimdm.evaluation.held_out import Part, validation_times
from multimdm.evaluation.mask_reading import MaskReading, evaluate_mask_reading, masked_losses, reads_masks
from multimdm.evaluation.nelbo import NelboSums, nelbo_sums
from multimdm.evaluation.perfect_models import perfect_model
from multimdm.evaluation.real_text import TalesText
from multimdm.models import expand_masks
from multimdm.pipeline import Model
from multimdm.process import MultiMask, Schedule, Streams
from support.quadrature import unit_interval
from support.tiny_models import TALES, causal_tales_model, shown_tales_model, tales_model, tiny_dit

V, M, L = 5, 3, 2
PROCESS = MultiMask(V, M, Schedule(0.6))


class Reader:
    """A network that knows the law of independent tokens, and takes the mask that it is shown for the true one."""

    def __init__(self, law: torch.Tensor) -> None:
        self.log_law = law.log()

    def logits(self, state: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        beta = PROCESS.schedule(t).beta[:, None]
        home = (PROCESS.assignment + V == state[:, None]).double()
        return self.log_law + (beta * home + (1 - beta) / M).log()

    def __call__(self, x_t, t, positions, valid, reduce):
        return reduce(self.logits(x_t[positions], t[:, None].expand(x_t.shape)[positions]), slice(None))


def law() -> torch.Tensor:
    return torch.softmax(torch.randn(V, generator=torch.Generator().manual_seed(0), dtype=torch.float64), 0)


def closed_form(network: Reader, p: torch.Tensor, time: float) -> float:
    """Per token at one time: the sum over tokens, states and masks that may be shown."""
    x_0, x_t, shown = torch.cartesian_prod(torch.arange(V), torch.arange(V, V + M), torch.arange(V, V + M)).T
    t = torch.full((len(x_0),), time, dtype=torch.float64)
    weight = p[x_0] * PROCESS.marginal(x_0, t).gather(1, x_t[:, None])[:, 0] / M

    def loss(state: torch.Tensor) -> torch.Tensor:
        terms = PROCESS.loss(network.logits(state, t).log_softmax(-1), x_0, x_t, t)
        return terms.reconstruction + terms.identification

    return float((weight * (loss(shown) - loss(x_t))).sum())


def test_it_is_the_closed_form():
    p, n = law(), 20_000
    ids = torch.multinomial(p, n * L, replacement=True, generator=torch.Generator().manual_seed(1)).view(n, L)
    part = Part(ids, None, validation_times(n, 1, seed=0), 0)
    true, random = masked_losses(Reader(p), PROCESS, part, part.streams(1), part.streams(2))
    gains = (random - true) / L
    times, weights = unit_interval(60)
    expected = sum(float(w) * closed_form(Reader(p), p, float(t)) for t, w in zip(times, weights, strict=True))
    assert expected > 0.1
    assert abs(float(gains.mean()) - expected) < 4 * float(gains.std()) / n**0.5


def test_what_is_hidden_and_the_noise_are_those_of_the_nelbo():
    ids = torch.randint(0, V, (6, L), generator=torch.Generator().manual_seed(2))
    part = Part(ids, None, torch.linspace(0.1, 0.9, 12, dtype=torch.float64).view(2, 6), 0)
    true, _ = masked_losses(Reader(law()), PROCESS, part, part.streams(1), part.streams(2))
    nelbo = nelbo_sums(Reader(law()), PROCESS, ids, None, part.times, Streams.spawn(1, 6))
    none, tokens = torch.zeros(6, dtype=torch.float64), torch.full((6,), 2.0, dtype=torch.float64)
    assert NelboSums.of(true, none, tokens).estimate().total == pytest.approx(nelbo.estimate().total)


@pytest.mark.parametrize("readout", ["posterior", "context"])
def test_masks_that_are_copies_of_each_other_tell_nothing(readout):
    """What Bayes' rule reads off the own mask is no merit of the network, and does not count."""
    network = expand_masks(tiny_dit(TALES.vocab_size, 1, 48), 4).eval()
    process = MultiMask(TALES.vocab_size, 4, readout=readout)
    found = evaluate_mask_reading(Model(network, process), TalesText(TALES), 16)
    assert found.difference == pytest.approx(0, abs=1e-6)
    assert not found.tested


@pytest.mark.parametrize("readout", ["posterior", "context"])
def test_they_tell_the_perfect_network_much(readout):
    """Those of other positions too, which is all that is left to read where own masks are read by Bayes' rule."""
    process = MultiMask(TALES.vocab_size, 20, Schedule(0.5), readout=readout)
    found = evaluate_mask_reading(perfect_model(process, TALES), TalesText(TALES), 96, seed=1)
    assert found.tested
    assert found.difference > 4 * found.standard_error
    assert found.sequences == 96
    assert found.own_by_rule == (readout == "context")


def test_a_little_is_no_test():
    assert MaskReading(1.5, 1.9, 0.05, 512).tested
    assert not MaskReading(1.751, 1.766, 0.001, 512).tested, "sure to be positive, and yet next to nothing"
    assert not MaskReading(1.5, 1.9, 0.3, 512).tested, "it may be chance"
    assert MaskReading(1.400, 1.415, 0.001, 512, own_by_rule=True).tested, "less is left to those of others"
    assert not MaskReading(1.400, 1.405, 0.001, 512, own_by_rule=True).tested


def test_who_has_masks_to_read():
    assert reads_masks(tales_model())
    for model in (tales_model(num_masks=1), shown_tales_model(), causal_tales_model()):
        assert not reads_masks(model)
        with pytest.raises(ValueError, match="what masks tell is for several masks"):
            evaluate_mask_reading(model, TalesText(TALES), 2)
