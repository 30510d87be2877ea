"""Consistency distillation equals its plain computation over full tables, in value and in gradient."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from multimdm.models import DiT, DiTConfig
from multimdm.objectives import Batch, Consistency, ConsistencySettings, Distillation, Objective
from multimdm.objectives.coupling import couple
from multimdm.process import MultiMask, Process, Streams, Uniform, debug_checks
from support.distilling import PROCESSES, B, L, V, batch, network
from support.gradients import assert_same_loss
from support.plain_divergence import plain_divergence
from support.tabular import as_function
from support.tiny_models import tiny_dit

MASKED = [name for name in PROCESSES if name != "uniform"]
TARGETS = ("cross_entropy", "smoothed", "skip")
DIVERGENCES = ("reverse_kl", "forward_kl")
CASES = [
    (name, divergence, target)
    for name in PROCESSES
    for divergence in DIVERGENCES
    for target in (TARGETS if name in MASKED else TARGETS[:1])
]


@pytest.fixture(autouse=True)
def _several_chunks(monkeypatch):
    monkeypatch.setattr("multimdm.models.head._CHUNK_ENTRIES", 4 * V)


def settings(**options: Any) -> ConsistencySettings:
    """With delta = 0.4 in the second round."""
    return ConsistencySettings(**({"delta": 0.2, "rounds": 2, "visible_target": "cross_entropy"} | options))


def plain(
    student: Any, teacher: Any, process: Process, options: ConsistencySettings, given: Batch, columns: Any = None
) -> Tensor:
    """Whole tables of logits, every position, then masks; `columns` are those that can be predicted."""
    delta = 0.4
    s = given.times * (1 - delta)
    t = s + delta
    apart = options.visible_target == "skip"
    x_s, x_t = couple(process, given.ids, s, t, options.coupling, copy.deepcopy(given.generator), apart)
    columns = torch.arange(V) if columns is None else columns
    log_p = student(x_t, t, None, given.valid)[..., columns].log_softmax(-1)
    with torch.no_grad():
        log_q = teacher(x_s, s, None, given.valid)[..., columns].log_softmax(-1)
    place = (columns[:, None, None] == given.ids).long().argmax(0)  # of the clean token among the columns
    one_hot = F.one_hot(place, len(columns)).to(log_p.dtype)
    if options.visible_target == "cross_entropy":
        revealed = -(one_hot * log_p).sum(-1)
    elif options.visible_target == "smoothed":
        mixed = (1 - options.smoothing) * one_hot + options.smoothing / len(columns)
        revealed = plain_divergence(options.divergence, log_p, mixed.log())
    else:
        revealed = torch.zeros_like(log_p[..., 0])
    matching = plain_divergence(options.divergence, log_p, log_q)
    uniform = isinstance(process, Uniform)
    hidden_s, hidden_t = ((x >= V) | uniform for x in (x_s, x_t))
    counts = hidden_t if given.valid is None else hidden_t & given.valid
    assert bool((counts & hidden_s).any()), "the case must have something to match"
    assert uniform or bool((counts & ~hidden_s).any()), "the case must have something revealed"
    return torch.where(counts, torch.where(hidden_s, matching, revealed), 0.0).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("name", "divergence", "target"), CASES)
def test_it_is_that_of_full_tables(name, divergence, target, padded, dtype):
    process, given = PROCESSES[name], batch(padded)
    student, teacher = network(process, dtype), network(process, dtype, seed=1)
    options = settings(divergence=divergence, visible_target=target, smoothing=0.05)
    expected = plain(student, teacher, process, options, given)
    result = Consistency(process, options, teacher)(student, given)
    torch.testing.assert_close(result.loss.detach(), result.terms["matching"] + result.terms["revealed"])
    assert_same_loss(student, result.loss, expected)


@pytest.mark.parametrize(
    ("name", "coupling"),
    [*((name, coupling) for name in PROCESSES for coupling in ("markov", "independent")), ("uniform", "gaussian")],
)
def test_it_is_that_of_full_tables_along_every_coupling(name, coupling):
    process, given = PROCESSES[name], batch(padded=True)
    student, teacher = network(process), network(process, seed=1)
    options = settings(coupling=coupling)
    expected = plain(student, teacher, process, options, given)
    assert_same_loss(student, Consistency(process, options, teacher)(student, given).loss, expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("name", PROCESSES)
def test_suppressed_columns_count_nothing(name, divergence, target):
    """Loss and gradients are finite, and those of a vocabulary without these columns."""
    process, columns = PROCESSES[name], torch.tensor([column for column in range(V) if column not in (0, 11)])
    given = batch()
    given = replace(given, ids=columns[given.ids % len(columns)])
    networks = []
    for seed in (0, 1):
        small = {"hidden_dim": 16, "num_blocks": 1, "num_heads": 2, "cond_dim": 8, "dropout": 0.0}
        networks.append(DiT(DiTConfig(V, process.num_masks, suppressed=(0, 11), **small)).double())
        networks[-1].load_state_dict(_random_weights(networks[-1], seed))
    student, teacher = networks
    options = settings(divergence=divergence, visible_target=target, smoothing=0.05)
    expected = plain(student, teacher, process, options, given, columns)
    loss = Consistency(process, options, teacher)(student, given).loss
    assert bool(loss.isfinite())
    assert_same_loss(student, loss, expected)


def _random_weights(net: DiT, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: 0.3 * torch.randn(x.shape, generator=generator, dtype=x.dtype) for name, x in net.state_dict().items()
    }


# ---------------------------------------------------------------- where and when


class Watch:
    """A network that remembers what it was asked."""

    def __init__(self, net: DiT) -> None:
        self.net = net
        self.calls: list[tuple[Tensor, ...]] = []

    def __call__(self, x_t, t, positions, valid=None, reduce=None):
        self.calls.append((x_t, t, positions))
        return self.net(x_t, t, positions, valid, reduce)


@pytest.mark.parametrize("delta", [2.0**-9, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("name", PROCESSES)
def test_the_times_are_delta_apart_in_the_unit_interval(name, delta):
    process = PROCESSES[name]
    student, teacher = Watch(network(process)), Watch(network(process))
    ends = torch.tensor([2.0**-53, 0.25, 0.5, 0.75, 1 - 2.0**-20, 1 - 2.0**-53], dtype=torch.float64)
    with debug_checks():
        Consistency(process, settings(delta=delta, rounds=1), teacher)(student, replace(batch(), times=ends))
    ((_, t, _),), ((_, s, _),) = student.calls, teacher.calls
    torch.testing.assert_close(t - s, torch.full((B,), delta, dtype=torch.float64), rtol=0, atol=1e-15)
    torch.testing.assert_close(t, delta + ends * (1 - delta))  # U(0, 1) becomes U(delta, 1)
    assert float(s.min()) >= 0
    assert float(t.min()) >= delta
    assert float(t.max()) <= 1


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", PROCESSES)
def test_networks_are_asked_only_what_is_needed(name, padded):
    """The student where x_t is hidden, the teacher where x_s is hidden too; padding never."""
    process, given = PROCESSES[name], batch(padded)
    student, teacher = Watch(network(process)), Watch(network(process))
    Consistency(process, settings(), teacher)(student, given)
    ((x_t, _, asked),), ((x_s, _, taught),) = student.calls, teacher.calls
    everything = torch.ones_like(x_t, dtype=torch.bool) if given.valid is None else given.valid
    uniform = name == "uniform"
    assert torch.equal(asked, everything & ((x_t >= V) | uniform))
    assert torch.equal(taught, everything & (((x_t >= V) & (x_s >= V)) | uniform))


@pytest.mark.parametrize("name", MASKED)
def test_positions_visible_at_t_carry_no_loss(name):
    process, given, net = PROCESSES[name], batch(), network(PROCESSES[name])
    objective = Consistency(process, settings(), network(process, seed=1))
    s, t = (torch.full((B,), time, dtype=torch.float64) for time in (0.2, 0.6))
    hidden = process.prior((B, L), torch.Generator().manual_seed(0))
    result = objective.compare(net, given, hidden, s, given.ids, t)  # visible at t, though hidden at s
    assert float(result.loss.detach()) == 0
    result.loss.backward()
    assert all(not bool(p.grad.any()) for p in net.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", PROCESSES)
def test_padding_may_hold_anything(name):
    process, given = PROCESSES[name], batch(padded=True)
    assert given.valid is not None
    student, teacher = network(process), network(process, seed=1)
    other = replace(given, ids=torch.where(given.valid, given.ids, 5), generator=copy.deepcopy(given.generator))
    losses = [Consistency(process, settings(), teacher)(student, some).loss for some in (given, other)]
    assert_same_loss(student, *losses)


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("name", PROCESSES)
def test_a_student_that_is_its_teacher_on_the_same_state_has_nothing_to_learn(name, divergence):
    process, given, net = PROCESSES[name], batch(padded=True), network(PROCESSES[name])
    x = process.corrupt(given.ids, given.times, torch.Generator().manual_seed(0))
    objective = Consistency(process, settings(divergence=divergence), net)
    result = objective.compare(net, given, x, given.times, x, given.times)
    assert abs(float(result.loss.detach())) < 1e-12
    result.loss.backward()
    assert all(float(p.grad.abs().max()) < 1e-12 for p in net.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", MASKED)
def test_nothing_hidden_is_no_loss(name):
    """A chunk, a teacher's lesson and a batch may be empty."""
    process, given, net = PROCESSES[name], batch(), network(PROCESSES[name])
    zero = torch.zeros(B, dtype=torch.float64)
    for target in TARGETS:
        objective = Consistency(process, settings(visible_target=target), net)
        result = objective.compare(net, given, given.ids, zero, given.ids, zero + 1e-3)
        result.loss.backward()
        assert float(result.loss.detach()) == 0


@pytest.mark.parametrize("name", MASKED)
def test_everything_revealed_is_the_cross_entropy(name):
    """delta = 1: s = 0, where every token is known. The teacher has no say."""
    process, given, net = PROCESSES[name], batch(), network(PROCESSES[name])
    result = Consistency(process, settings(delta=1.0, rounds=1), network(process, seed=1))(net, given)
    x_1 = process.couple(given.ids, [1.0], Streams.spawn(3, B))[0]
    logits = net(x_1, torch.ones(B, dtype=torch.float64))
    assert_same_loss(net, result.loss, F.cross_entropy(logits.flatten(0, 1), given.ids.flatten(), reduction="sum"))


# ------------------------------------------------------------------- networks


@pytest.mark.parametrize("name", PROCESSES)
def test_plain_functions_give_the_same_numbers(name):
    """Neither student nor teacher needs any method."""
    process, given = PROCESSES[name], batch(padded=True)
    student, teacher = network(process), network(process, seed=1)
    losses = [
        Consistency(process, settings(), of(teacher))(by(student), replace(given, generator=Streams.spawn(3, B))).loss
        for of, by in ((as_function, as_function), (lambda x: x, lambda x: x), (lambda x: x, as_function))
    ]
    assert_same_loss(student, losses[0], losses[1])
    torch.testing.assert_close(losses[2], losses[0])


@pytest.mark.parametrize("shape", ["function", "two parts"])
def test_the_teacher_gets_no_gradient(shape):
    process, given = PROCESSES["M=3"], batch()
    student, teacher = network(process), network(process, seed=1)
    loss = Consistency(process, settings(), teacher if shape == "two parts" else as_function(teacher))(student, given)
    loss.loss.backward()
    assert all(p.grad is None for p in teacher.parameters())
    assert all(p.grad is not None for p in student.parameters())


def test_a_student_that_teaches_itself_is_taught_by_a_copy():
    """Its own weights, as a teacher's, are constants."""
    process, net = PROCESSES["M=3"], network(PROCESSES["M=3"])
    losses = [Consistency(process, settings(), teacher)(net, batch()).loss for teacher in (net, copy.deepcopy(net))]
    assert_same_loss(net, *losses)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROCESSES)
def test_a_batch_is_the_sum_of_its_sequences(name, target):
    process = PROCESSES[name]
    student, teacher = network(process), network(process, seed=1)
    objective, given = Consistency(process, settings(visible_target=target), teacher), batch()
    whole = objective(student, given).loss
    parts = [
        objective(student, replace(given, ids=given.ids[i:j], times=given.times[i:j], generator=streams)).loss
        for i, j, streams in ((k, k + 2, Streams.spawn(3, 2, k)) for k in range(0, B, 2))
    ]
    assert_same_loss(student, whole, torch.stack(parts).sum())


def test_no_table_is_kept_for_the_backward_pass():
    """Nothing that waits for the backward pass has a row of V numbers per position."""
    wide = 700  # wider than everything else in the network
    process, kept = MultiMask(wide, 2), []
    student, teacher = (tiny_dit(wide, 2, 40, seed=seed) for seed in (0, 1))
    ids = torch.randint(0, wide, (20, 40), generator=torch.Generator().manual_seed(1))
    given = Batch(ids, None, torch.full((20,), 0.9, dtype=torch.float64), Streams.spawn(3, 20))
    weights = {p.data_ptr() for p in (*student.parameters(), *teacher.parameters())}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in weights:
            kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        Consistency(process, settings(delta=0.01), teacher)(student, given).loss.backward()
    assert max(kept) < 20 * 40 * wide / 4


# ------------------------------------------------------------------- settings


def test_the_moving_average_follows_at_every_step():
    objective = Consistency(PROCESSES["mdlm"], settings(mu=0.99))
    assert [objective.next_teacher(k, 10) for k in range(10)] == pytest.approx([0.01] * 10)


def test_between_rounds_the_teacher_is_a_copy():
    """At the end of each round but the last, after which nothing is learnt."""
    objective = Consistency(PROCESSES["mdlm"], ConsistencySettings(delta=0.1, rounds=3, teacher="rounds"))
    assert [objective.next_teacher(k, 9) for k in range(9)] == [0, 0, 1, 0, 0, 1, 0, 0, 0]


def test_what_changes_in_the_course_of_training():
    objective = Consistency(PROCESSES["mdlm"], ConsistencySettings(delta=0.125, rounds=3))
    told = [objective.settings_at(k, 6) for k in range(6)]
    assert told == [{"delta": 0.125 * 2**r, "round": r + 1} for r in (0, 0, 1, 1, 2, 2)]


def test_it_is_a_distillation_that_becomes_an_objective():
    objective = Consistency(PROCESSES["mdlm"], settings())
    assert isinstance(objective, Distillation)
    net, given = network(PROCESSES["mdlm"]), batch()
    taught = objective.taught_by(net)
    assert isinstance(taught, Objective)
    assert float(taught(net, given).loss.detach()) > 0
    with pytest.raises(ValueError, match=r"consistency needs a teacher: objective.taught_by\(network\)"):
        objective(net, batch())


def test_defaults_are_the_papers():
    options = ConsistencySettings()
    assert (options.delta, options.rounds, options.growth) == (2.0**-9, 5, 2)
    assert (options.coupling, options.divergence, options.teacher) == ("gumbel", "reverse_kl", "ema")


def test_masks_have_no_gaussian_path():
    with pytest.raises(ValueError, match="coupling gaussian is DUO's, for uniform states; masks have gumbel, markov"):
        Consistency(PROCESSES["M=3"], settings(coupling="gaussian"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"delta": 1.5, "rounds": 1}, "less than or equal to 1"),
        ({"delta": 0.5, "rounds": 3}, "take at most 2 rounds"),
        ({"mu": 1.0}, "less than 1"),
        ({"smoothing": 0.0}, "greater than 0"),
    ],
)
def test_bad_settings(wrong, message):
    with pytest.raises(ValueError, match=message):
        ConsistencySettings(**wrong)
