"""Paths with a given end: uniform ends give the process itself, and the reverse step obeys Bayes' rule."""

import pytest
import torch
from torch import Tensor

from multimdm.process import MultiMask, Schedule
from multimdm.process.anchored import anchor, anchored_reverse_sample, anchored_state, told_of_end
from support.statistics import MUTANT, REJECT, chi_square_p, p_of_draws

V, M, N = 5, 3, 200_000
PROCESS = MultiMask(V, M, Schedule(rho=0.6))


def draw(x_0: int, times, num: int = N, seed: int = 0, end: int | None = None) -> list[torch.Tensor]:
    """States at several times of paths from one token, to one end or to uniform ends."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.full((num,), x_0)
    ends = PROCESS.prior((num,), generator) if end is None else torch.full((num,), end)
    noise = anchor(ends, generator)
    return [*(anchored_state(PROCESS, start, noise, t) for t in times), ends]


@pytest.mark.parametrize("t", [0.1, 0.5, 0.9])
def test_with_uniform_ends_the_marginals_are_those_of_the_process(t):
    (x_t, _) = draw(1, [t])
    law = PROCESS.marginal(torch.tensor(1), torch.tensor(t, dtype=torch.float64))
    assert p_of_draws(x_t, law) > REJECT
    other = PROCESS.marginal(torch.tensor(1), torch.tensor(t + 0.02, dtype=torch.float64))
    assert p_of_draws(x_t, other) < MUTANT


def test_paths_begin_at_the_token_and_end_where_they_must():
    first, last, ends = draw(2, [0.0, 1.0], 1000)
    assert bool((first == 2).all())
    assert torch.equal(last, ends)


@pytest.mark.parametrize("end", range(V, V + M))
def test_the_reverse_step_gives_the_joint_law_back(end):
    """Forward to s and t; from x_t back to s with the true token: the same joint law of (x_s, x_t)."""
    s, t = 0.3, 0.7
    x_s, x_t, ends = draw(1, [s, t], end=end)
    back = anchored_reverse_sample(PROCESS, torch.full((N,), 1), x_t, ends, s, t, torch.Generator().manual_seed(7))
    n = PROCESS.num_states
    forward = torch.bincount(x_s * n + x_t, minlength=n * n).double()
    again = torch.bincount(back * n + x_t, minlength=n * n)
    assert int(again[forward == 0].sum()) == 0
    fresh = draw(1, [s, t], end=end, seed=1)  # an independent estimate of the law, of as many draws
    law = torch.bincount(fresh[0] * n + fresh[1], minlength=n * n).double() + forward
    assert chi_square_p(again / 1.5, law / law.sum()) > REJECT  # the law itself is estimated, from twice as many draws
    wrong = anchored_reverse_sample(PROCESS, torch.full((N,), 1), x_t, ends, 0.33, t, torch.Generator().manual_seed(7))
    assert chi_square_p(torch.bincount(wrong * n + x_t, minlength=n * n) / 1.5, law / law.sum()) < MUTANT


def test_the_last_step_leaves_no_mask_and_visible_tokens_stay():
    x_t, ends = draw(3, [0.8], 1000)
    clean = torch.randint(0, V, (1000,), generator=torch.Generator().manual_seed(0))
    x_0 = anchored_reverse_sample(PROCESS, clean, x_t, ends, 0.0, 0.8)
    assert torch.equal(x_0, torch.where(x_t < V, x_t, clean))


def agrees(x_t: Tensor, end: Tensor, tokens: Tensor) -> Tensor:
    """Whether a token can be behind x_t on a path that ends in `end`: at another mask than x_1, only its own tokens."""
    return (x_t == end) | (PROCESS.designated_mask(tokens) == x_t)


def test_tokens_that_can_be_behind_a_state():
    """Every token of a path agrees with its own states; another token does not where its own mask shows."""
    x_t, ends = draw(1, [0.6], 5000)
    masked = x_t >= V
    assert bool(agrees(x_t, ends, torch.full_like(x_t, 1))[masked].all())
    elsewhere = masked & (x_t != ends)
    assert int(elsewhere.sum()) > 100
    assert not bool(agrees(x_t, ends, torch.full_like(x_t, 2))[elsewhere].any())


@pytest.mark.parametrize("t", [0.2, 0.6, 1.0])
def test_what_the_end_tells_is_what_bayes_rule_says(t):
    """p(x_0 | x_t, x_1) by counting all cases, from p(x_0 | x_t), for every x_t and x_1."""
    prior = torch.tensor([0.1, 0.35, 0.2, 0.05, 0.3], dtype=torch.float64)
    v = PROCESS.schedule(torch.tensor(t, dtype=torch.float64))
    home = torch.nn.functional.one_hot(PROCESS.assignment, M).double()  # [V, M]
    hidden = v.beta * home[:, :, None] + v.one_minus_beta * torch.eye(M, dtype=torch.float64)  # [V, x_t, x_1]
    joint = prior[:, None, None] * hidden / M
    given_state = joint.sum(2) / joint.sum((0, 2))
    for j in range(M):
        for end in range(M):
            if float(joint[:, j, end].sum()) == 0:
                continue
            expected = joint[:, j, end] / joint[:, j, end].sum()
            x_t, x_1 = torch.tensor([V + j]), torch.tensor([V + end])
            told = told_of_end(PROCESS, given_state[:, j].log()[None], x_t, x_1, torch.tensor([t], dtype=v.beta.dtype))
            torch.testing.assert_close(told.softmax(-1)[0], expected)
            agreeing = agrees(x_t.expand(V), x_1.expand(V), torch.arange(V))
            assert torch.equal(agreeing, torch.isfinite(told[0]) & (prior > 0))


def test_with_one_mask_the_end_tells_nothing():
    process, logits = MultiMask(V, 1), torch.randn(4, V)
    end = torch.full((4,), V)
    assert torch.equal(told_of_end(process, logits, end, end, 0.4), logits)
