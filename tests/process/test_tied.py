"""Paths to an x_1 that is kept: uniform x_1 gives the process itself, reverse steps and losses obey Bayes' rule."""

from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import Tensor

from multimdm.process import Mixture, MultiMask, Path, Schedule, Streams, Uniform
from multimdm.process.tied import TiedPath
from support.processes import small_processes
from support.quadrature import unit_interval
from support.statistics import MUTANT, REJECT, chi_square_p, p_of_draws

V, M, N = 5, 3, 200_000
FREE = MultiMask(V, M, Schedule(rho=0.6))
PROCESS = FREE.tied()


def draw(x_0: int, times, num: int = N, seed: int = 0, end: int | None = None) -> list[torch.Tensor]:
    """Noised copies of one token at several times, on the way to one x_1 or to uniform ones, which come last."""
    generator = torch.Generator().manual_seed(seed)
    x_1 = PROCESS.prior((num,), generator) if end is None else torch.full((num,), end)
    path = PROCESS.path_to(x_1)
    return [*(path.corrupt(torch.full((num,), x_0), time, generator) for time in times), x_1]


def at(time: float) -> Tensor:
    return torch.tensor(time, dtype=torch.float64)


# ------------------------------------------------------------- which path it is


@pytest.mark.parametrize("process", small_processes().values(), ids=small_processes().keys())
def test_a_process_that_keeps_no_noise_is_its_own_path(process):
    """Whatever x_1 is offered: nothing is drawn for it, and every method is that of the process."""
    n, s, t = 64, at(0.3), at(0.7)
    x_0 = torch.arange(n) % process.vocab_size
    streams = Streams.spawn(0, n)
    path = process.path_to_prior((n,), streams)
    assert streams.draws == 0
    assert process.path_to(process.prior((n,))) == path == path.at(slice(3)) == Path(process, None)
    x_t = path.corrupt(x_0, t, Streams.spawn(1, n))
    assert torch.equal(x_t, process.corrupt(x_0, t, Streams.spawn(1, n)))
    assert path.shown(x_t) is x_t
    logits = torch.randn(n, process.vocab_size, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    assert path.condition(logits, x_t, t) is logits
    assert torch.equal(path.posterior_logits(logits, x_t, t), process.posterior_logits(logits, x_t, t))
    ours, theirs = path.loss(logits, x_0, x_t, t), process.logit_loss(logits, x_0, x_t, t)
    assert torch.equal(ours.total, theirs.total)
    back = path.reverse_sample(x_0, x_t, s, t, Streams.spawn(3, n))
    assert torch.equal(back, process.reverse_sample(x_0, x_t, s, t, Streams.spawn(3, n)))


def test_a_process_that_keeps_its_noise_has_to_be_given_it():
    with pytest.raises(ValueError, match="x_1 must be given for a process whose noise is tied to the text; got None"):
        PROCESS.path_to()
    path = PROCESS.path_to_prior((4,), Streams.spawn(0, 4))
    assert isinstance(path, TiedPath)
    assert torch.equal(path.x_1, PROCESS.prior((4,), Streams.spawn(0, 4)))
    assert torch.equal(path.at(torch.tensor([True, False, False, True])).x_1, path.x_1[[0, 3]])


def test_only_masks_hide():
    path, x, u = Uniform(V).path_to(), torch.zeros(3, dtype=torch.long), torch.zeros(3, dtype=torch.float64)
    with pytest.raises(ValueError, match="process must have masks for positions to be hidden; got Uniform"):
        path.masks_of(x, 0.5)
    with pytest.raises(ValueError, match="process must have masks for positions to stay hidden; got Uniform"):
        path.remain(x, x, 0.2, 0.5, u)


def test_of_masks_that_are_kept_there_may_be_more_than_tokens():
    """A number may fall into more buckets than there are tokens; every token then has a mask of its own."""
    process = MultiMask(V, V + 3, tied_noise=True)
    assert process.assignment.tolist() == list(range(V))
    assert process.tied(noise_shown=True).num_masks == V + 3
    x_1 = process.prior((N,), torch.Generator().manual_seed(0))
    assert p_of_draws(x_1 - V, torch.full((V + 3,), 1 / (V + 3))) > REJECT
    x_0, t = torch.full((N,), 2), 0.4
    x_t = process.path_to(x_1).corrupt(x_0, t, torch.Generator().manual_seed(1))
    law = torch.full((V + V + 3,), (1 - 0.6) * (1 - 0.6) / (V + 3), dtype=torch.float64)
    law[:V] = 0
    law[2] = 0.6
    law[V + 2] += (1 - 0.6) * 0.6
    assert p_of_draws(x_t, law) > REJECT
    back = process.path_to(x_1).reverse_sample(x_0, x_t, 0.0, t, torch.Generator().manual_seed(2))
    assert torch.equal(back, x_0)
    logits = torch.zeros(V, dtype=torch.float64).expand(N, V)
    loss = process.path_to(x_1).loss(logits, x_0, x_t, torch.tensor(t, dtype=torch.float64)).total
    assert bool(loss.isfinite().all())
    with pytest.raises(ValueError, match="must use every mask; mask 2 of 8"):
        MultiMask(V, V + 3, assignment=torch.tensor([0, 1, 1, 3, 4]), tied_noise=True)


# ------------------------------------------------------------------------ draws


@pytest.mark.parametrize("t", [0.1, 0.5, 0.9])
def test_with_uniform_ends_the_marginals_are_those_of_the_process(t):
    (x_t, _) = draw(1, [t])
    law = PROCESS.marginal(torch.tensor(1), at(t))
    assert p_of_draws(x_t, law) > REJECT
    other = PROCESS.marginal(torch.tensor(1), at(t + 0.02))
    assert p_of_draws(x_t, other) < MUTANT


def test_paths_begin_at_the_token_and_end_where_they_must():
    first, last, ends = draw(2, [0.0, 1.0], 1000)
    assert bool((first == 2).all())
    assert torch.equal(last, ends)


def kernel(x_0: int, x_1: int, t: Tensor) -> Tensor:
    """p_t(. | x_0, x_1) [*t, states], as the file's docstring has it."""
    v = PROCESS.schedule(t)
    law = torch.zeros((*t.shape, PROCESS.num_states), dtype=torch.float64)
    law[..., x_0] += v.alpha
    law[..., int(PROCESS.designated_mask(torch.tensor(x_0)))] += v.one_minus_alpha * v.beta
    law[..., x_1] += v.one_minus_alpha * v.one_minus_beta
    return law


@pytest.mark.parametrize("x_1", [V, V + 1])
def test_noised_texts_and_hidden_ones_have_the_law_given_the_noise(x_1):
    """Token 1 has the mask V + 1: its own, and another."""
    x_0, ends = torch.full((N,), 1), torch.full((N,), x_1)
    law = kernel(1, x_1, at(0.6))
    x_t = PROCESS.path_to(ends).corrupt(x_0, 0.6, torch.Generator().manual_seed(1))
    assert p_of_draws(x_t, law) > REJECT
    masks = PROCESS.path_to(ends).masks_of(x_0, 0.6, torch.Generator().manual_seed(2))
    hidden = law.clone()
    hidden[:V] = 0
    assert p_of_draws(masks, hidden / hidden.sum()) > REJECT
    assert torch.equal(masks, torch.full_like(masks, V + 1)) == (x_1 == V + 1)


def test_hidden_texts_of_another_time_have_another_law():
    masks = PROCESS.path_to(torch.full((N,), V)).masks_of(torch.full((N,), 1), 0.63, torch.Generator().manual_seed(2))
    law = kernel(1, V, at(0.6))[V:]
    assert p_of_draws(masks - V, law / law.sum()) < MUTANT


@pytest.mark.parametrize("process", [FREE, MultiMask(V, 1)], ids=["M=3", "M=1"])
def test_forgotten_noise_hides_by_the_marginal_too(process):
    """r_t^{x_0}: the marginal given that the position is hidden."""
    masks = process.path_to().masks_of(torch.full((N,), 1), 0.6, torch.Generator().manual_seed(2))
    law = process.marginal(torch.tensor(1), at(0.6)).clone()
    law[:V] = 0
    assert p_of_draws(masks, law / law.sum()) > REJECT


def joint(x_0: int, x_1: int, s: float, t: float) -> Tensor:
    """p(x_s, x_t | x_0, x_1) [states, states]: the token is left once, and then its designated mask once."""
    at_s, at_t = PROCESS.schedule(at(s)), PROCESS.schedule(at(t))
    home = int(PROCESS.designated_mask(torch.tensor(x_0)))
    law = torch.zeros((PROCESS.num_states, PROCESS.num_states), dtype=torch.float64)
    law[x_0, x_0] += at_t.alpha
    law[x_0, home] += (at_s.alpha - at_t.alpha) * at_t.beta
    law[x_0, x_1] += (at_s.alpha - at_t.alpha) * (1 - at_t.beta)
    law[home, home] += (1 - at_s.alpha) * at_t.beta
    law[home, x_1] += (1 - at_s.alpha) * (at_s.beta - at_t.beta)
    law[x_1, x_1] += (1 - at_s.alpha) * (1 - at_s.beta)
    return law


@pytest.mark.parametrize("end", range(V, V + M))
def test_the_reverse_step_gives_the_joint_law_back(end):
    """Forward to t; from x_t back to s with the true token: the joint law of (x_s, x_t)."""
    s, t = 0.3, 0.7
    x_t, x_1 = draw(1, [t], end=end)
    clean, path = torch.full((N,), 1), PROCESS.path_to(x_1)
    law = joint(1, end, s, t).flatten()
    assert float(law.sum()) == pytest.approx(1.0, abs=1e-12)

    def counts(back: Tensor) -> Tensor:
        return torch.bincount(back * PROCESS.num_states + x_t, minlength=len(law))

    back = counts(path.reverse_sample(clean, x_t, s, t, torch.Generator().manual_seed(7)))
    assert int(back[law == 0].sum()) == 0
    assert chi_square_p(back, law) > REJECT
    wrong = counts(path.reverse_sample(clean, x_t, 0.33, t, torch.Generator().manual_seed(7)))
    assert chi_square_p(wrong, law) < MUTANT


@pytest.mark.parametrize("process", [FREE, PROCESS], ids=["free", "tied"])
def test_what_remains_is_the_reverse_step_given_that_it_stays_hidden(process):
    """Token 1 has the mask V + 1; both start at mask V, which is x_1 where that is kept."""
    clean, x_t = torch.full((N,), 1), torch.full((N,), V)
    path = process.path_to(x_t)
    back = path.reverse_sample(clean, x_t, 0.3, 0.7, torch.Generator().manual_seed(3))
    hidden = torch.bincount(back, minlength=PROCESS.num_states)[V:]
    u = torch.rand(N, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    remains = torch.bincount(path.remain(clean, x_t, 0.3, 0.7, u), minlength=PROCESS.num_states)[V:].double()
    possible = remains > 0
    assert int(hidden[~possible].sum()) == 0
    assert int(possible.sum()) == (2 if process.tied_noise else M)
    share = float(hidden.sum()) / N
    law = remains[possible] / N
    assert chi_square_p(hidden[possible] / (1 + share), law) > REJECT  # the law is estimated, from N draws
    later = torch.bincount(path.remain(clean, x_t, 0.33, 0.7, u), minlength=PROCESS.num_states)[V:][possible]
    assert chi_square_p(later, law) < MUTANT


def test_the_last_step_leaves_no_mask_and_visible_tokens_stay():
    x_t, x_1 = draw(3, [0.8], 1000)
    clean = torch.randint(0, V, (1000,), generator=torch.Generator().manual_seed(0))
    x_0 = PROCESS.path_to(x_1).reverse_sample(clean, x_t, 0.0, 0.8)
    assert torch.equal(x_0, torch.where(x_t < V, x_t, clean))


# --------------------------------------------------------------- what x_1 tells


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


PRIOR = torch.tensor([0.1, 0.35, 0.2, 0.05, 0.3], dtype=torch.float64)
"""p(x_0) of one position."""


def joint_law(t: Tensor) -> Tensor:
    """p(x_0, x_t, x_1 | x_t hidden) [*t, V, M, M] by counting all cases, for an x_1 that is independent of x_0."""
    v = PROCESS.schedule(t[..., None, None, None])
    home = torch.nn.functional.one_hot(PROCESS.assignment, M).double()
    hidden = v.beta * home[:, :, None] + v.one_minus_beta * torch.eye(M, dtype=torch.float64)
    return PRIOR[:, None, None] * hidden / M


@dataclass(frozen=True)
class WithoutBeta(TiedPath):
    """A mutant: at x_1 the tokens of its mask keep all of their probability."""

    def condition(self, logits, x_t, t):
        return super().condition(logits, x_t, 1.0)  # beta_1 = 0


@pytest.mark.parametrize("t", [0.2, 0.6, 1.0])
def test_what_the_noise_tells_is_what_bayes_rule_says(t):
    """p(x_0 | x_t, x_1) from p(x_0 | x_t), for every x_t and x_1."""
    joint = joint_law(at(t))
    given_state = joint.sum(2) / joint.sum((0, 2))
    wrong = 0.0
    for j, end in product(range(M), range(M)):
        if float(joint[:, j, end].sum()) == 0:
            continue
        expected = joint[:, j, end] / joint[:, j, end].sum()
        x_t, x_1 = torch.tensor([V + j]), torch.tensor([V + end])
        logits = given_state[:, j].log()[None]
        path = PROCESS.path_to(x_1)
        found = path.posterior_logits(logits, x_t, at(t)[None])
        torch.testing.assert_close(found.softmax(-1)[0], expected)
        agreeing = agrees(x_t.expand(V), x_1.expand(V), torch.arange(V))
        assert torch.equal(agreeing, torch.isfinite(found[0]) & (PRIOR > 0))
        mutant = WithoutBeta(PROCESS, x_1).posterior_logits(logits, x_t, at(t)[None]).softmax(-1)[0]
        wrong = max(wrong, float((mutant - expected).abs().max()))
    assert (wrong > 0.01) == (t < 1)


def test_with_one_mask_the_noise_tells_nothing():
    process, logits = MultiMask(V, 1).tied(), torch.randn(4, V)
    end = torch.full((4,), V)
    assert torch.equal(process.path_to(end).condition(logits, end, 0.4), logits)


def test_a_network_that_is_shown_the_noise_is_left_alone():
    process, logits = FREE.tied(noise_shown=True), torch.randn(4, V)
    x_1, x_t = torch.tensor([V, V + 1, V + 2, V]), torch.tensor([V, 2, V + 1, 0])
    path = process.path_to(x_1)
    assert torch.equal(path.condition(logits, x_t, 0.4), logits)
    shown = path.shown(x_t, given=x_t < V)
    assert isinstance(shown, Mixture)
    assert torch.equal(shown.ids, torch.stack([x_t, x_1 + M], -1))
    assert torch.equal(shown.weights, torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0, 0.0]]))
    assert PROCESS.path_to(x_1).shown(x_t) is x_t


# ------------------------------------------------------------------------- loss


def bound(kind: type[TiedPath], x_0: int, x_1: int) -> float:
    """The time integral of the expected loss density of the perfect network, by enumerating x_t."""
    t, weights = unit_interval()
    joint = joint_law(t)
    given_state = (joint.sum(-1) / joint.sum((-3, -1))[..., None, :]).transpose(-1, -2)  # p(x_0 | x_t) [T, M, V]
    x_t = torch.arange(V, V + M).expand(len(t), M)
    path = kind(PROCESS, torch.full_like(x_t, x_1))
    total = path.loss(given_state.log(), torch.full_like(x_t, x_0), x_t, t).total
    law = kernel(x_0, x_1, t)[..., V:]
    return float((weights[:, None] * torch.where(law > 0, law * total, 0.0)).sum())


@dataclass(frozen=True)
class Unconditioned(TiedPath):
    """A mutant: the loss of a prediction that does not know x_1."""

    def condition(self, logits, x_t, t):
        return logits


def test_the_integral_of_the_loss_is_the_negative_log_likelihood_given_the_noise():
    """With an x_1 that is independent of the text and a perfect network the bound is tight on average: H(x_0 | x_1)."""
    entropy = -float((PRIOR * PRIOR.log()).sum())
    for x_1 in range(V, V + M):
        found = sum(float(PRIOR[a]) * bound(TiedPath, a, x_1) for a in range(V))
        assert found == pytest.approx(entropy, abs=2e-3)
        mutant = sum(float(PRIOR[a]) * bound(Unconditioned, a, x_1) for a in range(V))
        assert mutant > entropy + 0.02


def test_visible_positions_have_no_loss():
    x_1 = torch.full((2,), V)
    terms = PROCESS.path_to(x_1).loss(torch.randn(2, V), torch.tensor([1, 1]), torch.tensor([1, V]), 0.5)
    assert terms.total[0] == 0
    assert terms.reconstruction[1] > 0
