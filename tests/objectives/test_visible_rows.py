"""Leaving out positions that are visible at s must not select among those that are masked at t.

The law, on two positions where everything can be enumerated: the text given x_t has the same law among the positions
that are kept as among all. So a perfect student's expected gradient is zero if the teacher is right about the text.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from multimdm.objectives import Batch, Consistency, ConsistencySettings
from multimdm.objectives.coupling import couple
from multimdm.process import MultiMask, Schedule, Streams
from support.coupled_pairs import Pairs, Tie, average_given_x_t, coupled_pairs, one_position, taught
from support.oracle import Oracle
from support.statistics import MUTANT, REJECT, chi_square_p
from support.tabular import in_pieces

V, S_TIME, T_TIME = 4, 0.25, 0.5
PROCESSES = {
    "M=1": MultiMask(V, 1),
    "M=2": MultiMask(V, 2, Schedule(rho=0.7)),
    "M=3": MultiMask(V, 3),
    "M=4": MultiMask(V, 4, Schedule(rho=2.0)),
}
SEVERAL = [name for name in PROCESSES if name != "M=1"]
UNBIASED: list[Tie] = ["apart", "markov", "independent"]
SKIP = ConsistencySettings(divergence="forward_kl", visible_target="skip")


def exact(process: MultiMask) -> Oracle:
    """Data in which every pair of tokens occurs."""
    law = torch.rand(V, V, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.2
    return Oracle(process, law=law / law.sum())


def knows_the_text(pairs: Pairs) -> Any:
    """A teacher whose prediction is the text itself, whatever it is shown."""
    certain = F.one_hot(pairs.x_0, V).double().log()
    return lambda x, t, positions, valid=None: certain[positions]


def expected_gradient(process: MultiMask, pairs: Pairs, teacher: Any) -> Tensor:
    """Of skip's loss at the logits of the perfect student, [S, S, 2, V]."""
    theta = exact(process).predictions(T_TIME).clamp_min(1e-300).log().requires_grad_()
    s, t = (torch.full((len(pairs.x_0),), time, dtype=torch.float64) for time in (S_TIME, T_TIME))

    def student(x_t: Tensor, t: Tensor, positions: Tensor, valid: Any, reduce: Any) -> Any:
        logits = theta[x_t[:, 0], x_t[:, 1]]
        logits.register_hook(lambda slope: slope * pairs.probability[:, None, None])
        return in_pieces(logits[positions], reduce)

    batch = Batch(pairs.x_0, None, t, Streams.spawn(0, len(pairs.x_0)))
    loss = Consistency(process, SKIP, teacher).compare(student, batch, pairs.x_s, s, pairs.x_t, t).loss
    return torch.autograd.grad(loss, theta)[0]


@pytest.mark.parametrize("tie", UNBIASED)
@pytest.mark.parametrize("name", PROCESSES)
def test_a_perfect_student_stays_perfect_in_expectation(name, tie):
    process = PROCESSES[name]
    pairs = coupled_pairs(process, exact(process).law, S_TIME, T_TIME, tie)
    assert float(expected_gradient(process, pairs, knows_the_text(pairs)).abs().max()) < 1e-15


@pytest.mark.parametrize("name", SEVERAL)
def test_along_the_papers_paths_it_would_not(name):
    """With the token in the race, a mask that is seen at t tells whether the token showed at s; not if M = 1."""
    process = PROCESSES[name]
    pairs = coupled_pairs(process, exact(process).law, S_TIME, T_TIME, "gumbel")
    assert float(expected_gradient(process, pairs, knows_the_text(pairs)).abs().max()) > 1e-4
    one = coupled_pairs(PROCESSES["M=1"], exact(PROCESSES["M=1"]).law, S_TIME, T_TIME, "gumbel")
    assert float(expected_gradient(PROCESSES["M=1"], one, knows_the_text(one)).abs().max()) < 1e-15


@pytest.mark.parametrize(("name", "tie"), [("M=1", "gumbel"), ("M=2", "markov"), ("M=3", "markov")])
def test_taught_by_the_perfect_network_it_stays_perfect_along_chains(name, tie):
    """There x_t tells nothing of the text that x_s does not."""
    process = PROCESSES[name]
    pairs = coupled_pairs(process, exact(process).law, S_TIME, T_TIME, tie)
    predictions = exact(process).predictions(S_TIME).log()
    teacher = lambda x, t, positions, valid=None: predictions[x[:, 0], x[:, 1]][positions]  # noqa: E731
    assert float(expected_gradient(process, pairs, teacher).abs().max()) < 1e-15


def distance_of_target(process: MultiMask, tie: Tie) -> float:
    """The mean total variation of E[f_s | x_t], over what skip keeps, from p(x_0 | x_t)."""
    oracle = exact(process)
    pairs = coupled_pairs(process, oracle.law, S_TIME, T_TIME, tie)
    kept = process.active(pairs.x_s).double()
    sums = average_given_x_t(process, pairs, kept[..., None] * taught(process, pairs, oracle.predictions(S_TIME)))
    target = sums / average_given_x_t(process, pairs, kept)[..., None]
    found = (target - oracle.predictions(T_TIME))[pairs.x_t[:, 0], pairs.x_t[:, 1]].abs().sum(-1) / 2
    weight = pairs.probability[:, None] * process.active(pairs.x_t)
    return float((weight * found.nan_to_num()).sum() / weight.sum())


@pytest.mark.parametrize("name", SEVERAL)
def test_what_is_left_along_shared_gumbels_is_much_less(name):
    """Such a path is no chain, so that the perfect network's target is not quite the posterior."""
    process = PROCESSES[name]
    assert 0.005 < distance_of_target(process, "apart") < 0.6 * distance_of_target(process, "gumbel")


# ------------------------------------------------------------------- the draws


def drawn_counts(process: MultiMask, token: int, apart: bool) -> Tensor:
    ids = torch.full((100, 1000), token)
    s, t = (torch.full((100,), time, dtype=torch.float64) for time in (S_TIME, T_TIME))
    pair = couple(process, ids, s, t, "gumbel", Streams.spawn(5, 100), reveal_apart=apart)
    n = process.num_states
    return torch.bincount((pair.x_s * n + pair.x_t).flatten(), minlength=n * n).view(n, n)


@pytest.mark.parametrize("name", SEVERAL)
def test_pairs_have_the_law_that_was_enumerated(name):
    process, token = PROCESSES[name], 1
    ties: dict[bool, Tie] = {True: "apart", False: "gumbel"}
    laws = {apart: one_position(process, token, S_TIME, T_TIME, tie) for apart, tie in ties.items()}
    for apart, law in laws.items():
        counts = drawn_counts(process, token, apart)
        assert chi_square_p(counts, law) > REJECT
        assert chi_square_p(counts, laws[not apart]) < MUTANT


def test_of_one_mask_every_bit_is_kept():
    process, ids = PROCESSES["M=1"], torch.arange(V).repeat(50, 10)
    s, t = (torch.full((50,), time, dtype=torch.float64) for time in (S_TIME, T_TIME))
    old, new = (
        couple(process, ids, s, t, "gumbel", Streams.spawn(5, 50), reveal_apart=apart) for apart in (False, True)
    )
    assert torch.equal(old.x_s, new.x_s)
    assert torch.equal(old.x_t, new.x_t)


@pytest.mark.parametrize(("visible", "share"), [("skip", 0.525), ("cross_entropy", 0.685)])
def test_the_share_of_designated_masks_among_what_is_kept(visible, share):
    """Of all positions that are masked at t = 0.5 it is 0.5 + 0.5 / 20 = 0.525."""
    process, asked = MultiMask(40, 20), []

    def network(x: Tensor, t: Tensor, positions: Tensor, valid: Any = None, reduce: Any = None) -> Any:
        asked.append((x, positions))
        logits = torch.zeros(int(positions.sum()), 40, dtype=torch.float64, requires_grad=reduce is not None)
        return logits if reduce is None else in_pieces(logits, reduce)

    settings = ConsistencySettings(delta=T_TIME - S_TIME, rounds=1, visible_target=visible)
    ids = torch.randint(0, 40, (100, 1000), generator=torch.Generator().manual_seed(0))
    times = torch.full((100,), S_TIME / (1 - T_TIME + S_TIME), dtype=torch.float64)
    Consistency(process, settings, network)(network, Batch(ids, None, times, Streams.spawn(3, 100)))
    (_, kept), (x_t, _) = asked
    designated = (x_t == process.designated_mask(ids))[kept].double()
    assert abs(float(designated.mean()) - share) < 5 * 0.5 / len(designated) ** 0.5
