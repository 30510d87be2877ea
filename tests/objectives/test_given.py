"""Prompts are given: seen as they are, never noised, never asked for. What is left is the answers' own objective."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from multimdm.evaluation.held_out import validation_times
from multimdm.evaluation.nelbo import nelbo_sums
from multimdm.objectives import (
    Batch,
    Consistency,
    ConsistencySettings,
    Context,
    ContextSettings,
    Elbo,
    NextToken,
    Objective,
    Sdtt,
    SdttSettings,
)
from multimdm.process import MultiMask, Process, Schedule, Streams, Uniform
from support.distilling import PROCESSES, B, L, V, batch, network
from support.means import p_of_means
from support.oracle import Oracle
from support.quadrature import unit_interval
from support.statistics import REJECT
from support.tiny_models import tiny_dit

GIVEN = torch.arange(L) < torch.tensor([2, 0, 7, 1, 3, 6])[:, None]
LAW = torch.full((V,), 1.0, dtype=torch.float64)
PLAIN_SDTT = SdttSettings(delta=0.1, rounds=2)


def objectives(process: Process) -> dict[str, Objective]:
    """All that can leave prompts alone, of one process."""
    teacher = network(process, seed=1)
    found: dict[str, Objective] = {
        "elbo": Elbo(process),
        "consistency": Consistency(process, ConsistencySettings(delta=0.1, rounds=2)).taught_by(teacher),
        "sdtt": Sdtt(process, PLAIN_SDTT).taught_by(teacher),
    }
    if isinstance(process, MultiMask):
        words = Context(ContextSettings(by="uniform", share=0.5), LAW)
        own = Context(ContextSettings(by="own", share=0.5))
        found |= {"mistakes": Elbo(process, context=words), "own mistakes": Elbo(process, context=own)}
    return found


NAMED = [(name, each) for name, process in PROCESSES.items() for each in objectives(process)]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("name", "which"), NAMED)
def test_where_everything_is_an_answer_nothing_changes(name, which, padded):
    """Bit for bit, in value and in gradient."""
    objective, net = objectives(PROCESSES[name])[which], network(PROCESSES[name])
    plain, marked = batch(padded), replace(batch(padded), given=torch.zeros(B, L, dtype=torch.bool))
    one, other = (objective(net, given).loss for given in (plain, marked))
    assert torch.equal(one, other)
    slopes = (torch.autograd.grad(loss, list(net.parameters()), allow_unused=True) for loss in (one, other))
    for a, b in zip(*slopes, strict=True):
        assert (a is None) == (b is None)
        assert a is None or b is None or torch.equal(a, b)


class Watched:
    """A table of logits for every position, which knows what it was shown and asked."""

    def __init__(self) -> None:
        self.logits = torch.randn(B, L, V, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        self.logits.requires_grad_()
        self.shown: list[Tensor] = []
        self.asked: list[Tensor] = []

    def __call__(self, x_t, t, positions, valid, reduce=None):
        rows = slice(None) if len(x_t) == B else slice(0, len(x_t))
        self.shown.append(x_t)
        self.asked.append(positions)
        logits = self.logits[rows][positions]
        return logits if reduce is None else reduce(logits, slice(0, len(logits)))


@pytest.mark.parametrize(("name", "which"), [pair for pair in NAMED if pair[1] in ("elbo", "mistakes")])
def test_prompts_are_seen_as_they_are_and_have_no_loss_and_no_gradient(name, which):
    objective, table = objectives(PROCESSES[name])[which], Watched()
    given = replace(batch(padded=True), given=GIVEN)
    loss = objective(table, given).loss
    (slope,) = torch.autograd.grad(loss, table.logits)
    assert torch.equal(slope[GIVEN], torch.zeros_like(slope[GIVEN]))
    assert float(slope[~GIVEN].abs().sum()) > 0
    for shown, asked in zip(table.shown, table.asked, strict=True):
        assert torch.equal(shown[GIVEN], given.ids[GIVEN])
        assert not bool((asked & GIVEN).any())


@pytest.mark.parametrize("which", ["consistency", "sdtt", "own mistakes"])
@pytest.mark.parametrize("name", ["mdlm", "M=3"])
def test_neither_students_nor_teachers_are_asked_for_prompts(name, which):
    """Every call, of whatever network, has the prompts before it."""
    process, table = PROCESSES[name], Watched()
    objective = {
        "consistency": Consistency(process, ConsistencySettings(delta=0.1, rounds=2)).taught_by(table),
        "sdtt": Sdtt(process, PLAIN_SDTT).taught_by(table),
        "own mistakes": Elbo(process, context=Context(ContextSettings(by="own", share=0.9, sequences=1.0))),
    }[which]
    given = replace(batch(), given=GIVEN)
    (slope,) = torch.autograd.grad(objective(table, given).loss, table.logits)
    assert torch.equal(slope[GIVEN], torch.zeros_like(slope[GIVEN]))
    assert len(table.shown) > 1
    for shown, asked in zip(table.shown, table.asked, strict=True):
        assert torch.equal(shown[GIVEN], given.ids[GIVEN])
        assert not bool((asked & GIVEN).any())


def test_an_autoregressive_model_is_asked_for_answers_alone():
    net = tiny_dit(V, 1, L, causal=True).double()
    given = replace(batch(), given=GIVEN)
    log_probs = net(torch.nn.functional.pad(given.ids[:, :-1], (1, 0), value=V), None).log_softmax(-1)
    expected = -log_probs.gather(-1, given.ids[..., None])[..., 0][~GIVEN].sum()
    torch.testing.assert_close(NextToken(V)(net, given).loss, expected)


# ---------------------------------------------------------------- the conditional law, by brute force

TOKENS = 4
CONDITIONAL = {"mdlm": MultiMask(TOKENS, 1), "M=3": MultiMask(TOKENS, 3, Schedule(rho=0.6))}


class Exact:
    """The exact prediction for a prompt of one token and an answer of one."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle

    def __call__(self, x_t, t, positions, valid, reduce):
        tables = {float(time): self.oracle.predictions(float(time)) for time in t.unique()}
        rows = torch.stack([tables[float(time)][a, b] for (a, b), time in zip(x_t, t, strict=True)])
        logits = rows[positions].log()
        return reduce(logits, slice(0, len(logits)))


def conditional_entropy(law: Tensor) -> float:
    return float(-(law * (law / law.sum(1, keepdim=True)).log()).sum())


def expected_loss(process: MultiMask, oracle: Oracle, t: float) -> float:
    """The mean over texts and states of the answer of its loss at time t, over full tables."""
    time, total = torch.tensor(t, dtype=torch.float64), 0.0
    at_t = process.marginal(torch.arange(TOKENS), time)
    for a in range(TOKENS):
        for b in range(TOKENS):
            for state in range(TOKENS, process.num_states):
                log_probs = oracle.predictions(t)[a, state, 1].log()
                terms = process.loss(log_probs[None], torch.tensor([b]), torch.tensor([state]), time[None])
                total += float(oracle.law[a, b] * at_t[b, state] * (terms.reconstruction + terms.identification))
    return total


@pytest.mark.parametrize("name", CONDITIONAL)
def test_given_the_prompt_the_integrated_loss_is_the_conditional_entropy(name):
    process = CONDITIONAL[name]
    oracle = Oracle(process, seed=3)
    times, weights = unit_interval()
    integral = sum(float(w) * expected_loss(process, oracle, float(t)) for t, w in zip(times, weights, strict=True))
    assert integral == pytest.approx(conditional_entropy(oracle.law), rel=1e-6)


def texts(law: Tensor, num: int) -> Tensor:
    drawn = torch.multinomial(law.flatten(), num, replacement=True, generator=torch.Generator().manual_seed(5))
    return torch.stack([drawn // TOKENS, drawn % TOKENS], dim=1)


@pytest.mark.parametrize("name", CONDITIONAL)
def test_the_objective_is_that_of_the_answer_given_the_prompt(name):
    """Its mean at one time is the mean over full tables; a prompt that were noised or counted would move it."""
    process, num, parts = CONDITIONAL[name], 4000, 40
    oracle, given = Oracle(process, seed=3), torch.tensor([[True, False]]).expand(num, 2)
    ids, times = texts(oracle.law, num), torch.full((num,), 0.6, dtype=torch.float64)
    means = []
    for first in range(0, num, num // parts):
        rows = slice(first, first + num // parts)
        some = Batch(ids[rows], None, times[rows], Streams.spawn(7, num // parts, first), given=given[rows])
        means.append(Elbo(process)(Exact(oracle), some).loss / (num // parts))
    found = torch.stack(means)
    expected = torch.tensor(expected_loss(process, oracle, 0.6), dtype=torch.float64)
    assert p_of_means(found.mean(), expected, found.var(), parts) > REJECT


@pytest.mark.parametrize("name", CONDITIONAL)
def test_the_nelbo_counts_answers_only(name):
    """The conditional entropy, per token of an answer, or of as many tokens as are said to be."""
    process, num = CONDITIONAL[name], 3000
    oracle = Oracle(process, seed=3)
    ids, given = texts(oracle.law, num), torch.tensor([[True, False]]).expand(num, 2)
    times, streams = validation_times(num, 1, seed=1), Streams.spawn(8, num)
    network, again = Exact(oracle), copy.deepcopy(streams)
    sums = nelbo_sums(network, process, ids, None, times, streams, given=given)
    result = sums.estimate(process)
    assert result.tokens == num
    assert abs(result.total - conditional_entropy(oracle.law)) < 4 * result.standard_error
    twice = nelbo_sums(network, process, ids, None, times, again, given=given, tokens=torch.full((num,), 2))
    assert twice.estimate(process).total == pytest.approx(result.total / 2)


def test_the_nelbo_of_uniform_states_keeps_prompts_as_they_are():
    process, table = Uniform(V), Watched()
    ids = batch().ids
    nelbo_sums(table, process, ids, None, torch.full((1, B), 0.9).double(), Streams.spawn(1, B), given=GIVEN)
    assert torch.equal(table.shown[0][GIVEN], ids[GIVEN])
    assert not torch.equal(table.shown[0], ids)
    assert torch.equal(table.asked[0], ~GIVEN)


def test_kept_noise_has_no_prompts():
    process = MultiMask(V, 3).tied()
    with pytest.raises(ValueError, match="given tokens are for masks and uniform states with noise of their own"):
        nelbo_sums(
            Watched(), process, batch().ids, None, torch.full((1, B), 0.9).double(), Streams([0] * B), given=GIVEN
        )
