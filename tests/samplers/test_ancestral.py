"""K steps follow the law that composing the reverse kernels gives, and that law tends to the data's."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from multimdm.process import MultiMask, Process, Schedule, Uniform
from multimdm.samplers import Ancestral, Choice, generate, time_grid
from multimdm.samplers.choice import keep_top_k, keep_top_p
from support.oracle import Oracle, composed_law, pairs, total_variation
from support.processes import bayes, beta_for_alpha, off_by_one
from support.statistics import MUTANT, REJECT, p_of_draws

N = 40_000
PROCESSES = {
    "M=1": MultiMask(4, 1),
    "M=2": MultiMask(4, 2, Schedule(rho=0.5)),
    "M=3": MultiMask(5, 3, Schedule(rho=2.0, kind="cosine")),
    "context": MultiMask(5, 3, Schedule(rho=0.7), readout="context"),
    "uniform": Uniform(3),
    "uniform cosine": Uniform(4, Schedule(kind="cosine")),
}
ALL = pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
GRIDS = {
    "one step": (1.0, 0.0),
    "uniform": time_grid("uniform", 3),
    "cosine": time_grid("cosine", 4),
    "given": (1.0, 0.9, 0.2, 0.0),
}


def draw(oracle: Oracle, step: Ancestral, process: Process | None = None, seed: int = 3) -> torch.Tensor:
    nothing, process = torch.zeros(N, 2, dtype=torch.long), process or oracle.process
    return generate(oracle, process, step, nothing, generator=torch.Generator().manual_seed(seed)).ids


@ALL
@pytest.mark.parametrize("times", GRIDS.values(), ids=GRIDS)
def test_law(process, times):
    oracle = Oracle(process)
    ids = draw(oracle, Ancestral(times))
    assert p_of_draws(pairs(ids, process.vocab_size), composed_law(oracle, times)) > REJECT


class Forgetful(Uniform):
    """A mutant: takes the leave-one-out prediction for the posterior."""

    def posterior_weights(self, weights, x_t, t):
        return weights


class Credulous(MultiMask):
    """A mutant: the evidence of the own mask joins twice."""

    def posterior_weights(self, weights, x_t, t):
        return super().posterior_weights(super().posterior_weights(weights, x_t, t), x_t, t)


class Hasty(MultiMask):
    """A mutant: what is to stay masked stays at the mask it is at."""

    def reverse_sample(self, clean, x_t, s, t, generator=None):
        x_s = super().reverse_sample(clean, x_t, s, t, generator)
        return torch.where(self.active(x_s), x_t, x_s)


class Impatient(MultiMask):
    """A mutant: reveals everything in the first step."""

    def reverse_sample(self, clean, x_t, s, t, generator=None):
        return super().reverse_sample(clean, x_t, 0.0, t, generator)


MUTANTS = {
    "all at once": ("M=1", lambda p: Impatient(4, 1)),
    "off by one": ("M=3", off_by_one),
    "alpha for beta": ("M=2", beta_for_alpha),
    "masks stay": ("M=3", lambda p: Hasty(p.vocab_size, p.num_masks, p.schedule, p.assignment)),
    "own mask read twice": (
        "context",
        lambda p: Credulous(p.vocab_size, p.num_masks, p.schedule, p.assignment, readout="context"),
    ),
    "leave-one-out forgotten": ("uniform", lambda p: Forgetful(p.vocab_size, p.schedule)),
}


@pytest.mark.parametrize(("name", "mutate"), MUTANTS.values(), ids=MUTANTS)
def test_wrong_kernels_are_rejected(name, mutate):
    process, times = PROCESSES[name], (1.0, 0.7, 0.35, 0.0)
    ids = draw(Oracle(process), Ancestral(times), mutate(process))
    assert p_of_draws(pairs(ids, process.vocab_size), composed_law(Oracle(process), times)) < MUTANT


TO_THE_DATA = {
    "M=1": MultiMask(4, 1),
    "M=2": MultiMask(4, 2),
    "M=3": MultiMask(5, 3),
    "context": MultiMask(5, 3, readout="context"),
    "uniform": Uniform(4),
}


@pytest.mark.parametrize("process", TO_THE_DATA.values(), ids=TO_THE_DATA)
def test_the_law_tends_to_that_of_the_data(process):
    oracle = Oracle(process)
    far = [total_variation(composed_law(oracle, time_grid("uniform", K)), oracle.law) for K in (1, 4, 16, 64, 256)]
    assert all(later < 0.6 * earlier for earlier, later in pairwise(far)), far
    assert far[-1] < 0.002


def test_the_distance_with_one_mask_is_that_of_one_step_over_the_steps():
    """Two positions go wrong only if one step reveals both, which has probability 1/K on the uniform grid."""
    oracle = Oracle(MultiMask(4, 1))
    at_once = total_variation(composed_law(oracle, (1.0, 0.0)), oracle.law)
    for K in (2, 5, 17):
        far = total_variation(composed_law(oracle, time_grid("uniform", K)), oracle.law)
        assert far == pytest.approx(at_once / K, rel=1e-12)


# ------------------------------------------------------------------- temperature and truncation

CHOICES = {
    "cool": Choice(temperature=0.5),
    "warm": Choice(temperature=1.7),
    "top-k": Choice(top_k=2),
    "top-p": Choice(top_p=0.6),
    "all": Choice(temperature=1.3, top_p=0.8, top_k=3),
    "greedy": Choice(temperature=0),
}


def exactly(choice: Choice):
    """What a choice makes of a table of probabilities."""

    def changed(probs: torch.Tensor) -> torch.Tensor:
        if choice.temperature == 0:
            return torch.nn.functional.one_hot(probs.argmax(-1), probs.shape[-1]).double()
        rows = (probs ** (1 / choice.temperature)).flatten(0, -2)
        rows = keep_top_p(keep_top_k(rows / rows.sum(-1, keepdim=True), choice.top_k), choice.top_p)
        return (rows / rows.sum(-1, keepdim=True)).view(probs.shape)

    return changed


@pytest.mark.parametrize("name", ["M=3", "context", "uniform cosine"])
@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_choices_act_on_the_prediction_before_the_kernel(name, choice):
    oracle, times = Oracle(PROCESSES[name]), time_grid("uniform", 3)
    ids = draw(oracle, Ancestral(times, choice))
    V = oracle.process.vocab_size
    assert p_of_draws(pairs(ids, V), composed_law(oracle, times, choose=exactly(choice))) > REJECT
    if choice.temperature != 0:
        assert p_of_draws(pairs(ids, V), composed_law(oracle, times)) < MUTANT


@pytest.mark.parametrize("name", ["context", "uniform"])
def test_temperature_on_the_posterior_is_another_law_and_can_be_had(name):
    """The decision for predictions from the context is visible in the samples."""
    process, times, tau = PROCESSES[name], time_grid("uniform", 3), 0.5
    oracle, V = Oracle(process), process.vocab_size

    def cooled_posterior(prediction, x_t, s, t):
        posterior = bayes(process, prediction, x_t, torch.tensor(t).double()) ** (1 / tau)
        clean = torch.arange(process.vocab_size).expand(posterior.shape)
        kernel = process.posterior(clean, x_t[..., None].expand_as(clean), torch.tensor(s).double(), torch.tensor(t))
        moved = torch.einsum("...a,...as->...s", posterior / posterior.sum(-1, keepdim=True), kernel.double())
        stays = torch.nn.functional.one_hot(x_t, process.num_states).double()
        return torch.where(process.active(x_t)[..., None], moved, stays)

    law = composed_law(oracle, times, kernel=cooled_posterior)
    ids = draw(oracle, Ancestral(times, Choice(temperature=tau)))
    assert p_of_draws(pairs(ids, V), law) < MUTANT
    ids = draw(oracle, Ancestral(times, Choice(temperature=tau, on="posterior")))
    assert p_of_draws(pairs(ids, V), law) > REJECT


@pytest.mark.parametrize("name", ["M=2", "context", "uniform"])
def test_greedy_last_step(name):
    process, times = PROCESSES[name], time_grid("uniform", 3)
    oracle = Oracle(process)

    def kernel(prediction, x_t, s, t):
        if s > 0:
            return process.reverse(prediction, x_t, s, t)
        best = process.posterior_weights(prediction, x_t, t).argmax(-1)
        clean = torch.where(process.active(x_t), best, x_t)
        return torch.nn.functional.one_hot(clean, process.num_states).double()

    ids = draw(oracle, replace(Ancestral(times), greedy_last=True))
    assert p_of_draws(pairs(ids, process.vocab_size), composed_law(oracle, times, kernel)) > REJECT
