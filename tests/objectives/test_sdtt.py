"""SDTT's targets are those of a teacher that is simulated plainly, and those of all its trajectories on average."""

import copy
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from multimdm.objectives import Batch, Distillation, Objective, Sdtt, SdttSettings
from multimdm.process import MultiMask, Process, Streams, Uniform, debug_checks
from support import distilling
from support.distilling import PROCESSES, B, V, network
from support.gradients import assert_same_loss
from support.means import p_of_means
from support.plain_divergence import KINDS, plain_divergence
from support.statistics import MUTANT, REJECT
from support.tabular import Table, as_function, random_table, smooth_table

DELTA = 0.2
CHUNKED = pytest.mark.usefixtures("_several_chunks")


@pytest.fixture
def _several_chunks(monkeypatch):
    """Of the student's logits and of the teacher's draws."""
    monkeypatch.setattr("multimdm.models.head._CHUNK_ENTRIES", 4 * V)
    monkeypatch.setattr("multimdm.objectives.sdtt._CHUNK_ENTRIES", 5 * V)


def batch(padded: bool = False) -> Batch:
    return distilling.batch(padded, seed=4)


def settings(**options: Any) -> SdttSettings:
    """With the teacher's step DELTA in the second round."""
    return SdttSettings(**({"delta": DELTA / 2, "rounds": 2} | options))


def posterior(process: Process, logits: Tensor, x: Tensor, t: Tensor) -> Tensor:
    """log p(x_0 | x_t): for uniform states Bayes' rule, by the likelihood of x_t under every token."""
    if isinstance(process, MultiMask):
        return logits.log_softmax(-1)
    every_token = torch.arange(process.vocab_size).expand(len(t), -1)
    at_t = process.marginal(every_token, t)  # [B, x_0, x_t]
    likelihood = at_t.to(logits.dtype).transpose(1, 2).gather(1, x[..., None].expand_as(logits))
    return (logits.log_softmax(-1) + likelihood.log()).log_softmax(-1)


def plain_times(t: Tensor, steps: int, compat: bool) -> list[tuple[Tensor, Tensor]]:
    if not compat:
        return [(t - i * DELTA, (t - (i + 1) * DELTA).clamp_min(0)) for i in range(steps)]
    weights = [1.0] if steps == 1 else [1 - i / (steps - 1) for i in range(steps)]
    starts = [(t * w + (1 - t) * (t - steps * DELTA)).clamp_min(1e-5) for w in weights]
    return [(start, (start - DELTA).clamp_min(0)) for start in starts]


def plain(student: Any, teacher: Any, process: Process, options: SdttSettings, given: Batch) -> Tensor:
    """Whole tables, every position, the same random numbers: noise of x_t, then two numbers per step and position."""
    generator, span = copy.deepcopy(given.generator), DELTA * options.teacher_steps
    t = span + given.times * (1 - span)
    x = x_t = process.corrupt(given.ids, t, generator)
    target, revealed = None, torch.zeros_like(x, dtype=torch.bool)
    for start, end in plain_times(t, options.teacher_steps, options.compat):
        with torch.no_grad():
            log_q = posterior(process, teacher(x, start, None, given.valid), x, start)
        hidden = process.active(x)
        target = log_q if target is None else torch.where(hidden[..., None], log_q, target)
        running = log_q.exp().double().cumsum(-1)
        clean = (running <= generator.uniform(x.shape)[..., None] * running[..., -1:]).sum(-1)
        clean = torch.where(hidden, clean, x)
        x = process.reverse_sample(clean, x, end, start, generator)
        revealed |= hidden & ~process.active(x)
    assert isinstance(process, Uniform) or bool(revealed.any()), "the case must reveal something"
    assert target is not None
    log_p = posterior(process, student(x_t, t, None, given.valid), x_t, t)
    counts = process.active(x_t) if given.valid is None else process.active(x_t) & given.valid
    return torch.where(counts, plain_divergence(options.divergence, log_p, target), 0.0).sum()


@CHUNKED
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("divergence", KINDS)
@pytest.mark.parametrize("name", PROCESSES)
def test_it_is_that_of_full_tables(name, divergence, steps):
    process, given = PROCESSES[name], batch(padded=steps > 1)
    student, teacher = network(process), network(process, seed=1)
    options = settings(divergence=divergence, teacher_steps=steps)
    expected = plain(student, teacher, process, options, given)
    result = Sdtt(process, options, teacher)(student, given)
    assert result.terms.keys() == {"matching"}
    torch.testing.assert_close(result.loss.detach(), result.terms["matching"])
    assert_same_loss(student, result.loss, expected)


@CHUNKED
@pytest.mark.parametrize("divergence", KINDS)
@pytest.mark.parametrize("name", PROCESSES)
def test_in_single_precision(name, divergence):
    process, given = PROCESSES[name], batch(padded=True)
    student, teacher = network(process, torch.float32), network(process, torch.float32, seed=1)
    expected = plain(student, teacher, process, settings(divergence=divergence), given)
    assert_same_loss(student, Sdtt(process, settings(divergence=divergence), teacher)(student, given).loss, expected)


@CHUNKED
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("name", PROCESSES)
def test_with_the_published_times(name, steps):
    process, given = PROCESSES[name], batch()
    student, teacher = network(process), network(process, seed=1)
    options = settings(compat=True, teacher_steps=steps)
    expected = plain(student, teacher, process, options, given)
    with debug_checks():
        assert_same_loss(student, Sdtt(process, options, teacher)(student, given).loss, expected)


# -------------------------------------------------- all trajectories of a teacher


TINY: dict[str, Process] = {"mdlm": MultiMask(3, 1), "M=2": MultiMask(3, 2), "uniform": Uniform(3)}
TINY_T, TINY_DELTA = 0.9, 0.3


@dataclass(frozen=True)
class Trajectories:
    """Every x_t of two positions and every way of the teacher from there: its states before each of its steps."""

    states: Tensor
    """[n, steps, 2]."""
    probability: Tensor


def trajectories(process: Process, teacher: Table, x_0: Tensor, steps: int) -> Trajectories:
    """By the reverse kernels of the process, whose positions are independent given the whole state."""
    t, S = torch.tensor(TINY_T, dtype=torch.float64), process.num_states
    pairs = torch.tensor(list(product(range(S), repeat=2)))
    first = process.marginal(x_0, t)
    ways, chances = pairs[:, None], first[0, pairs[:, 0]] * first[1, pairs[:, 1]]
    for i in range(steps - 1):
        start, end = (torch.tensor(TINY_T - j * TINY_DELTA, dtype=torch.float64) for j in (i, i + 1))
        predicted = teacher.logits_at(float(start))[pairs[:, 0], pairs[:, 1]].softmax(-1)
        kernel = process.reverse(predicted, pairs, end, start)  # [S * S, 2, S]
        moves = kernel[:, 0, pairs[:, 0]] * kernel[:, 1, pairs[:, 1]]  # [from, to]
        last = ways[:, -1, 0] * S + ways[:, -1, 1]
        ways = torch.cat([ways.repeat_interleave(len(pairs), 0), pairs.repeat(len(ways), 1)[:, None]], dim=1)
        chances = (chances[:, None] * moves[last]).flatten()
        ways, chances = ways[chances > 0], chances[chances > 0]
    return Trajectories(ways, chances)


def targets(process: Process, teacher: Table, ways: Tensor, rule: str) -> Tensor:
    """[n, 2, V]: of each position the prediction by which it was revealed, or the last (`revealed`); mutants beside.

    `first`: as if the teacher took no step. `last`: the last prediction even of what is known by then.
    """
    result = None
    for i in range(ways.shape[1]):
        x, time = ways[:, i], torch.full((len(ways),), TINY_T - i * TINY_DELTA, dtype=torch.float64)
        log_q = posterior(process, teacher.logits_at(float(time[0]))[x[:, 0], x[:, 1]], x, time)
        newer = process.active(x) if rule == "revealed" else torch.full_like(x, rule == "last", dtype=torch.bool)
        result = log_q if result is None else torch.where(newer[..., None], log_q, result)
    assert result is not None
    return result


def exact_moments(
    process: Process, options: SdttSettings, teacher: Table, theta: Tensor, x_0: Tensor, rule: str = "revealed"
) -> tuple[Tensor, Tensor]:
    """Mean and variance of the loss (first) and of its gradient in the table theta (then), over all trajectories."""
    all_of_them = trajectories(process, teacher, x_0, options.teacher_steps)
    torch.testing.assert_close(all_of_them.probability.sum(), torch.ones((), dtype=torch.float64))
    x_t, probability = all_of_them.states[:, 0], all_of_them.probability
    logits = theta[x_t[:, 0], x_t[:, 1]].requires_grad_()  # one copy per trajectory
    log_p = posterior(process, logits, x_t, torch.full((len(x_t),), TINY_T, dtype=torch.float64))
    log_q = targets(process, teacher, all_of_them.states, rule)
    each = torch.where(process.active(x_t), plain_divergence(options.divergence, log_p, log_q), 0.0).sum(1)
    (slopes,) = torch.autograd.grad(each.sum(), logits)
    moments = []
    for power in (1, 2):
        table = torch.zeros_like(theta)
        table.index_put_((x_t[:, 0], x_t[:, 1]), probability[:, None, None] * slopes**power, accumulate=True)
        moments.append(torch.cat([(probability @ each.detach() ** power)[None], table.flatten()]))
    return moments[0], moments[1] - moments[0] ** 2


def sampled(process: Process, options: SdttSettings, teacher: Any, theta: Tensor, x_0: Tensor, num: int) -> Tensor:
    """The average of loss (first) and gradient (then) over repeats of the real objective."""
    theta = theta.clone().requires_grad_()
    span = TINY_DELTA * options.teacher_steps
    times = torch.full((num,), 1.0 if span == 1 else (TINY_T - span) / (1 - span), dtype=torch.float64)
    given = Batch(x_0.expand(num, -1), None, times, Streams.spawn(8, num))
    loss = Sdtt(process, options, teacher)(Table(lambda t: theta), given).loss
    (gradient,) = torch.autograd.grad(loss, theta)
    return torch.cat([loss.detach()[None], gradient.flatten()]) / num


@pytest.mark.parametrize(("divergence", "steps"), [*((kind, 2) for kind in KINDS), ("mse", 1), ("reverse_kl", 3)])
@pytest.mark.parametrize("name", TINY)
def test_loss_and_gradient_are_those_of_all_trajectories_on_average(name, divergence, steps):
    process, num, x_0 = TINY[name], 10_000, torch.tensor([2, 0])
    teacher, theta = smooth_table(process, 1), random_table(process, 2)
    options = SdttSettings(delta=TINY_DELTA, rounds=1, teacher_steps=steps, divergence=divergence)
    means = sampled(process, options, teacher, theta, x_0, num)
    assert p_of_means(means, *exact_moments(process, options, teacher, theta, x_0), num) > REJECT


@pytest.mark.parametrize(("name", "rule"), [("mdlm", "first"), ("mdlm", "last"), ("M=2", "last"), ("uniform", "first")])
def test_other_rules_for_the_targets_are_rejected(name, rule):
    process, num, x_0 = TINY[name], 10_000, torch.tensor([2, 0])
    teacher, theta = smooth_table(process, 1), random_table(process, 2)
    options = SdttSettings(delta=TINY_DELTA, rounds=1, teacher_steps=3)
    means = sampled(process, options, teacher, theta, x_0, num)
    assert p_of_means(means, *exact_moments(process, options, teacher, theta, x_0, rule), num) < MUTANT


# ----------------------------------------------------------------------- times


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_the_teacher_goes_down_from_t_in_steps_of_delta(steps):
    objective = Sdtt(PROCESSES["mdlm"], SdttSettings(delta=0.125, rounds=1, teacher_steps=steps))
    t = torch.tensor([0.125 * steps, 0.7, 1.0], dtype=torch.float64)
    grid = objective.times(t, 0.125)
    assert len(grid) == steps
    for i, (start, end) in enumerate(grid):
        torch.testing.assert_close(start, t - 0.125 * i)
        torch.testing.assert_close(end, t - 0.125 * (i + 1))
    assert float(grid[-1][1].min()) == 0


@pytest.mark.parametrize("t", [0.01, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_compat_is_the_published_formula(t, steps):
    delta = 2.0**-10
    objective = Sdtt(PROCESSES["mdlm"], SdttSettings(delta=delta, rounds=1, teacher_steps=steps, compat=True))
    grid = objective.times(torch.tensor([t], dtype=torch.float64), delta)
    for weight, (start, end) in zip(torch.linspace(1, 0, steps).tolist(), grid, strict=True):
        assert float(start) == pytest.approx(max(t * weight + (1 - t) * (t - steps * delta), 1e-5))
        assert float(end) == pytest.approx(max(float(start) - delta, 0.0))


def test_the_published_times_are_not_those_that_were_meant():
    """As measured in the published code at t = 1/2."""
    t = torch.tensor([0.5], dtype=torch.float64)
    options = SdttSettings()
    starts = {
        compat: [float(start) for start, _ in Sdtt(PROCESSES["mdlm"], replace(options, compat=compat)).times(t, 2**-10)]
        for compat in (True, False)
    }
    assert starts[True] == pytest.approx([0.749, 0.249], abs=5e-4)
    assert starts[False] == pytest.approx([0.5, 0.499], abs=5e-4)


@pytest.mark.parametrize(("delta", "steps"), [(2.0**-10, 2), (0.25, 3), (0.5, 2), (1 / 3, 3), (1.0, 1)])
@pytest.mark.parametrize("name", PROCESSES)
def test_the_times_fill_what_the_teachers_steps_leave(name, delta, steps):
    """t ~ U(span, 1): the teacher never goes below 0."""
    process = PROCESSES[name]
    seen: list[Tensor] = []
    net = as_function(network(process))

    def watched(x_t, t, positions, valid=None, reduce=None):
        seen.append(t)
        return net(x_t, t, positions, valid, reduce)

    ends = torch.tensor([2.0**-53, 0.2, 0.4, 0.6, 1 - 2.0**-20, 1 - 2.0**-53], dtype=torch.float64)
    options = SdttSettings(delta=delta, rounds=1, teacher_steps=steps)
    with debug_checks():
        Sdtt(process, options, watched)(watched, replace(batch(), times=ends))
    *teaching, t = seen
    span = min(1.0, delta * steps)
    torch.testing.assert_close(t, span + ends * (1 - span))
    assert float(t.max()) <= 1
    assert len(teaching) == steps
    for i, start in enumerate(teaching):
        torch.testing.assert_close(start, t - i * delta)


# -------------------------------------------------------------------- networks


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", PROCESSES)
def test_networks_are_asked_only_what_is_needed(name, padded):
    """The student at the hidden positions of x_t, the teacher where they are still hidden; padding never."""
    process, given, asked = PROCESSES[name], batch(padded), []
    net = as_function(network(process))

    def watched(x_t, t, positions, valid=None, reduce=None):
        everything = torch.ones_like(x_t, dtype=torch.bool) if given.valid is None else given.valid
        assert torch.equal(positions, everything & process.active(x_t))
        asked.append(positions)
        return net(x_t, t, positions, valid, reduce)

    Sdtt(process, settings(teacher_steps=3), watched)(watched, given)
    counts = [int(positions.sum()) for positions in asked[:3]]
    assert torch.equal(asked[0], asked[3])
    assert counts == sorted(counts, reverse=True)
    assert (counts[0] > counts[-1]) == isinstance(process, MultiMask)


@CHUNKED
@pytest.mark.parametrize("name", PROCESSES)
def test_plain_functions_give_the_same_numbers(name):
    process, given = PROCESSES[name], batch(padded=True)
    student, teacher = network(process), network(process, seed=1)
    losses = [
        Sdtt(process, settings(), of(teacher))(by(student), replace(given, generator=Streams.spawn(4, B))).loss
        for of, by in ((as_function, as_function), (lambda x: x, lambda x: x))
    ]
    assert_same_loss(student, *losses)


@pytest.mark.parametrize("name", PROCESSES)
def test_a_teacher_may_give_the_same_table_again_and_again(name):
    """Its answers are not written to: here one row, shown at every position."""
    process, losses = PROCESSES[name], []
    row = torch.linspace(-1, 1, V, dtype=torch.float64)
    for copies in (True, False):

        def teacher(x: Tensor, t: Tensor, positions: Tensor, valid: Tensor | None, copies: bool = copies) -> Tensor:
            shown = row.expand(int(positions.sum()), -1)
            return shown.clone() if copies else shown

        losses.append(Sdtt(process, settings(teacher_steps=3), teacher)(network(process), batch()).loss.detach())
    torch.testing.assert_close(*losses)
    assert torch.equal(row, torch.linspace(-1, 1, V, dtype=torch.float64))


@pytest.mark.parametrize("shape", ["function", "two parts"])
@pytest.mark.parametrize("name", PROCESSES)
def test_the_teacher_gets_no_gradient_and_stays_as_it_is(name, shape):
    process = PROCESSES[name]
    student, teacher = network(process), network(process, seed=1)
    before = {key: value.clone() for key, value in teacher.state_dict().items()}
    Sdtt(process, settings(), teacher if shape == "two parts" else as_function(teacher))(
        student, batch()
    ).loss.backward()
    assert all(p.grad is None for p in teacher.parameters())
    assert all(p.grad is not None for p in student.parameters())
    assert all(torch.equal(value, before[key]) for key, value in teacher.state_dict().items())


@pytest.mark.parametrize("divergence", KINDS)
@pytest.mark.parametrize("name", PROCESSES)
def test_one_step_of_a_student_that_is_its_teacher_teaches_nothing(name, divergence):
    process, net = PROCESSES[name], network(PROCESSES[name])
    loss = Sdtt(process, settings(teacher_steps=1, divergence=divergence), net)(net, batch()).loss
    assert abs(float(loss.detach())) < 1e-12


@CHUNKED
@pytest.mark.parametrize("name", PROCESSES)
def test_a_batch_is_the_sum_of_its_sequences(name):
    process = PROCESSES[name]
    student, teacher = network(process), network(process, seed=1)
    objective, given = Sdtt(process, settings(teacher_steps=3), teacher), batch()
    whole = objective(student, given).loss
    parts = [
        objective(student, replace(given, ids=given.ids[k : k + 2], times=given.times[k : k + 2], generator=own)).loss
        for k, own in ((k, Streams.spawn(4, 2, k)) for k in range(0, B, 2))
    ]
    assert_same_loss(student, whole, torch.stack(parts).sum())


@pytest.mark.parametrize("name", PROCESSES)
def test_padding_may_hold_anything(name):
    process, given = PROCESSES[name], batch(padded=True)
    assert given.valid is not None
    student, teacher = network(process), network(process, seed=1)
    other = replace(given, ids=torch.where(given.valid, given.ids, 5), generator=copy.deepcopy(given.generator))
    losses = [Sdtt(process, settings(), teacher)(student, some).loss for some in (given, other)]
    assert_same_loss(student, *losses)


# -------------------------------------------------------------------- settings


def test_the_student_is_the_teacher_of_the_next_round():
    objective = Sdtt(PROCESSES["mdlm"], SdttSettings(delta=0.05, rounds=3))
    assert [objective.next_teacher(k, 9) for k in range(9)] == [0, 0, 1, 0, 0, 1, 0, 0, 0]
    told = [objective.settings_at(k, 6) for k in range(6)]
    assert told == [{"delta": 0.05 * 2**r, "round": r + 1} for r in (0, 0, 1, 1, 2, 2)]


def test_it_is_a_distillation_that_becomes_an_objective():
    objective, net = Sdtt(PROCESSES["mdlm"], settings()), network(PROCESSES["mdlm"])
    assert isinstance(objective, Distillation)
    taught = objective.taught_by(network(PROCESSES["mdlm"], seed=1))
    assert isinstance(taught, Objective)
    assert float(taught(net, batch()).loss.detach()) > 0
    with pytest.raises(ValueError, match=r"SDTT needs a teacher: objective.taught_by\(network\)"):
        objective(net, batch())


def test_defaults_are_the_published_ones():
    options = SdttSettings()
    assert (options.delta, options.rounds, options.teacher_steps, options.divergence) == (2.0**-10, 7, 2, "reverse_kl")
    assert not options.compat
