"""What consistency learns, on two positions where everything can be enumerated. Thm. (consistency_target)."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from multimdm.objectives import Batch, Consistency, ConsistencySettings
from multimdm.objectives.settings import Coupling
from multimdm.process import MultiMask, Process, Schedule, Streams, Uniform
from support.coupled_pairs import Pairs, average_given_x_t, coupled_pairs, one_position, taught
from support.means import p_of_means
from support.oracle import Oracle
from support.plain_divergence import plain_divergence
from support.statistics import MUTANT, REJECT
from support.tabular import Table, in_pieces, random_table

V, S_TIME, T_TIME = 3, 0.6, 0.8
PROCESSES: dict[str, Process] = {
    "M=1": MultiMask(V, 1),
    "M=2": MultiMask(V, 2, Schedule(rho=0.7)),
    "M=3": MultiMask(V, 3),
    "uniform": Uniform(V),
}
POSTERIOR: list[tuple[str, Coupling]] = [("M=1", "gumbel"), ("M=1", "markov"), ("M=2", "markov")]
"""Where the target is p(x_0 | x_t)."""
NOT_POSTERIOR: list[tuple[str, Coupling, float]] = [
    ("M=2", "gumbel", 0.02),
    ("M=3", "gumbel", 0.04),
    ("M=1", "independent", 0.04),
]
"""Where it is not, and by how much at least."""
ALL = [*POSTERIOR, *((name, coupling) for name, coupling, _ in NOT_POSTERIOR)]


def exact(process: Process) -> Oracle:
    """Data in which every pair of tokens occurs, and the network that predicts them exactly."""
    law = torch.rand(V, V, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.2
    return Oracle(process, law=law / law.sum())


def exact_network(oracle: Oracle) -> Table:
    return Table(lambda t: oracle.predictions(t).log())


def batch(ids: Tensor, time: float = 0.5) -> Batch:
    times = torch.full((len(ids),), time, dtype=torch.float64)
    return Batch(ids, None, times, Streams.spawn(7, len(ids)))


def compare(objective: Consistency, student: Any, pairs: Pairs, s: float, t: float) -> Any:
    s_, t_ = (torch.full((len(pairs.x_0),), time, dtype=torch.float64) for time in (s, t))
    return objective.compare(student, batch(pairs.x_0), pairs.x_s, s_, pairs.x_t, t_)


def target(process: Process, coupling: Coupling) -> Tensor:
    """E[f_s | x_t], [S, S, 2, V], by enumeration."""
    oracle = exact(process)
    pairs = coupled_pairs(process, oracle.law, S_TIME, T_TIME, coupling)
    return average_given_x_t(process, pairs, taught(process, pairs, oracle.predictions(S_TIME)))


def asked(process: Process) -> Tensor:
    """Which entries [S, S, 2] of a table are predictions: those of hidden positions."""
    first, second = torch.meshgrid(*2 * [torch.arange(process.num_states)], indexing="ij")
    return process.active(torch.stack([first, second], dim=-1))


def expected_gradients(theta: Tensor, pairs: Pairs) -> Any:
    """A student with the logits theta; the gradient of a sum over pairs becomes that of their expectation."""

    def call(x_t: Tensor, t: Tensor, positions: Tensor, valid: Any, reduce: Any) -> Any:
        logits = theta[x_t[:, 0], x_t[:, 1]]
        logits.register_hook(lambda slope: slope * pairs.probability[:, None, None])
        return in_pieces(logits[positions], reduce)

    return call


# ------------------------------------------------------------------ the target


@pytest.mark.parametrize(("name", "coupling"), ALL)
def test_gradient_descent_leads_to_the_average_of_the_targets(name, coupling):
    """Over all pairs, each weighed by its probability."""
    process = PROCESSES[name]
    oracle = exact(process)
    pairs = coupled_pairs(process, oracle.law, S_TIME, T_TIME, coupling)
    objective = Consistency(
        process, ConsistencySettings(divergence="forward_kl", visible_target="cross_entropy"), exact_network(oracle)
    )
    theta = torch.zeros(*2 * [process.num_states], 2, V, dtype=torch.float64, requires_grad=True)
    often = torch.zeros(theta.shape[:2], dtype=torch.float64)
    often.index_put_((pairs.x_t[:, 0], pairs.x_t[:, 1]), pairs.probability, accumulate=True)
    for _ in range(90):
        loss = compare(objective, expected_gradients(theta, pairs), pairs, S_TIME, T_TIME).loss
        (gradient,) = torch.autograd.grad(loss, theta)
        with torch.no_grad():  # rare states are as important as frequent ones
            theta -= 3 * gradient / often.clamp_min(1e-12)[..., None, None]
    asked_and_possible = asked(process) & (often > 0)[..., None]
    found, wanted = (x[asked_and_possible] for x in (theta.detach().softmax(-1), target(process, coupling)))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-8)
    assert not bool(theta[~asked(process)].any())  # what is visible is not learnt


@pytest.mark.parametrize(("name", "coupling"), POSTERIOR)
def test_along_chains_and_with_one_mask_the_target_is_the_posterior(name, coupling):
    """x_t tells nothing of x_0 that x_s does not: the tower rule."""
    process = PROCESSES[name]
    found = target(process, coupling)
    counts = asked(process) & found.isfinite().all(-1)
    torch.testing.assert_close(found[counts], exact(process).predictions(T_TIME)[counts], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "coupling", "least"), NOT_POSTERIOR)
def test_along_shared_gumbels_of_several_masks_it_is_not(name, coupling, least):
    """Such a path is no Markov chain: x_t tells of x_0 what x_s does not. Nor are independent draws."""
    process = PROCESSES[name]
    found = target(process, coupling)
    counts = asked(process) & found.isfinite().all(-1)
    difference = (found - exact(process).predictions(T_TIME))[counts].abs().max()
    assert least < float(difference) < 0.2


@pytest.mark.parametrize(("name", "coupling"), ALL)
def test_the_sampled_objective_is_unbiased(name, coupling):
    """Its gradient has the exact expectation: zero at the target, and not at the posterior if that is another."""
    process, num = PROCESSES[name], 60_000
    oracle = exact(process)
    pairs = coupled_pairs(process, oracle.law, S_TIME, T_TIME, coupling)
    delta = T_TIME - S_TIME
    options = ConsistencySettings(
        divergence="forward_kl", visible_target="cross_entropy", coupling=coupling, delta=delta, rounds=1
    )
    objective = Consistency(process, options, exact_network(oracle))
    code = torch.multinomial(oracle.law.flatten(), num, replacement=True, generator=torch.Generator().manual_seed(1))
    ids = torch.stack([code // V, code % V], dim=-1)

    def p_of_gradient(logits: Tensor, expected_at: Tensor) -> float:
        """Of the sampled gradient at one table, were its expectation that at the other."""
        theta = logits.clone().requires_grad_()
        loss = objective(Table(lambda t: theta), batch(ids, S_TIME / (1 - delta))).loss
        (gradient,) = torch.autograd.grad(loss, theta)
        mean, variance = gradient_moments(process, oracle, pairs, expected_at)
        return p_of_means(gradient / num, mean, variance, num)

    anywhere, best = random_table(process, 5), target(process, coupling).nan_to_num(1 / V).clamp_min(1e-30).log()
    assert p_of_gradient(anywhere, anywhere) > REJECT
    mean, _ = gradient_moments(process, oracle, pairs, best)
    assert float(mean.abs().max()) < 1e-15
    assert p_of_gradient(best, best) > REJECT
    if (name, coupling) not in POSTERIOR:
        posterior = oracle.predictions(T_TIME).clamp_min(1e-30).log()
        assert p_of_gradient(posterior, best) < MUTANT


def gradient_moments(process: Process, oracle: Oracle, pairs: Pairs, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of softmax(theta) - f_s, which is the gradient at hidden positions of x_t."""
    moments = []
    slope = logits.softmax(-1)[pairs.x_t[:, 0], pairs.x_t[:, 1]] - taught(process, pairs, oracle.predictions(S_TIME))
    slope = slope * process.active(pairs.x_t)[..., None]
    for power in (1, 2):
        total = torch.zeros_like(logits)
        weighted = pairs.probability[:, None, None] * slope**power
        moments.append(total.index_put_((pairs.x_t[:, 0], pairs.x_t[:, 1]), weighted, accumulate=True))
    return moments[0], moments[1] - moments[0] ** 2


# --------------------------------------------------------------- small steps


def expectations(network: Table, pairs: Pairs) -> Any:
    """A student for which a sum over the pairs is their expectation: each is reduced by itself and weighed."""

    def call(x_t: Tensor, t: Tensor, positions: Tensor, valid: Any, reduce: Any) -> Any:
        logits, start, total = network(x_t, t, positions), 0, torch.zeros(3, dtype=torch.float64)
        for rows, probability in zip(positions.sum(1).tolist(), pairs.probability, strict=True):
            if rows:
                sums = reduce(logits[start : start + rows], slice(start, start + rows))
                total = total + probability * torch.stack(sums)
            start += rows
        return total.unbind()

    return call


def one_jump(process: Process, law: Tensor, t: float, coupling: Coupling) -> Pairs:
    """Pairs that differ in one position, with the rate at which they come about at t."""
    time, states = torch.tensor(t, dtype=torch.float64), torch.arange(process.num_states)
    at_t = process.marginal(torch.arange(V), time)
    if coupling == "markov":
        rates = at_t[:, :, None] * process.rates(time).T  # [x_0, x_s, x_t]
    else:
        small = 1e-7
        rates = torch.stack([one_position(process, token, t - small, t, coupling) for token in range(V)]) / small
    rates[:, states, states] = 0.0
    still = torch.diag_embed(at_t)
    whole = torch.einsum("ab,aik,bjl->abijkl", law, rates, still) + torch.einsum(
        "ab,aik,bjl->abijkl", law, still, rates
    )
    where = whole.nonzero()
    return Pairs(where[:, 0:2], where[:, 2:4], where[:, 4:6], whole[tuple(where.T)])


def speeds(process: Process, oracle: Oracle, t: float, settings: ConsistencySettings) -> tuple[float, float]:
    """How fast both terms grow with delta: the losses of single jumps, times their rates."""
    pairs, table = one_jump(process, oracle.law, t, settings.coupling), oracle.predictions(t).log()
    log_p, log_q = (table[x[:, 0], x[:, 1]] for x in (pairs.x_t, pairs.x_s))
    matching = plain_divergence(settings.divergence, log_p, log_q)
    revealed = -log_p.gather(-1, pairs.x_0[..., None])[..., 0]
    hidden_s, hidden_t = process.active(pairs.x_s), process.active(pairs.x_t)
    terms = (torch.where(hidden_t & hidden_s, matching, 0.0), torch.where(hidden_t & ~hidden_s, revealed, 0.0))
    first, second = (float(pairs.probability @ term.sum(1)) for term in terms)
    return first, second


@pytest.mark.parametrize("divergence", ["forward_kl", "reverse_kl"])
@pytest.mark.parametrize(
    ("name", "coupling"), [("M=1", "gumbel"), ("M=2", "markov"), ("M=2", "gumbel"), ("uniform", "gumbel")]
)
def test_the_loss_of_a_student_that_is_its_teacher_is_linear_in_delta(name, coupling, divergence):
    """loss / delta tends to the rate of jumps times their loss, what is revealed included; the error is of order delta.

    Where nothing jumps, predictions at t and t - delta differ by delta, and divergences are of second order.
    """
    process = PROCESSES[name]
    oracle, t = exact(process), 0.6
    network = exact_network(oracle)
    settings = ConsistencySettings(divergence=divergence, coupling=coupling, visible_target="cross_entropy")
    limits = speeds(process, oracle, t, settings)
    assert limits[0] > 0.01
    assert limits[1] > 0.1 or name == "uniform"
    errors = []
    for delta in (1e-2, 1e-3, 1e-4):
        pairs = coupled_pairs(process, oracle.law, t - delta, t, coupling)
        objective = Consistency(process, settings, network)
        result = compare(objective, expectations(network, pairs), pairs, t - delta, t)
        speed = torch.stack([result.terms["matching"], result.terms["revealed"]]) / delta
        torch.testing.assert_close(result.loss / delta, speed.sum())
        errors.append(float((speed - torch.tensor(limits, dtype=torch.float64)).abs().max()))
    assert errors[0] < 0.1
    for larger, smaller in pairwise(errors):
        assert smaller < 0.15 * larger
