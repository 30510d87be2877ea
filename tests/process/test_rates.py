"""The generators: derivatives of the kernels, and the designated-entry chain of Prop. (entry_mixing_equivalence)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from multimdm.process import MultiMask, Schedule
from support.designated_entry import DesignatedEntry
from support.processes import multimask_processes, predicts_posterior, small_processes

PROCESSES = small_processes()
ALL = pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
SEVERAL = {name: p for name, p in multimask_processes().items() if 1 < p.num_masks < 50}
ENTRIES = pytest.mark.parametrize("process", SEVERAL.values(), ids=SEVERAL)


def f64(t: float) -> torch.Tensor:
    return torch.tensor(t, dtype=torch.float64)


@ALL
@given(t=st.floats(0.0, 0.98))
def test_rates_are_a_generator(process, t):
    rates = process.rates(f64(t))
    off_diagonal = rates - torch.diag(torch.diagonal(rates))
    assert bool((off_diagonal >= 0).all())
    torch.testing.assert_close(rates.sum(0), torch.zeros(process.num_states, dtype=torch.float64), atol=1e-9, rtol=0)


@ALL
@given(t=st.floats(0.05, 0.9))
def test_rates_are_the_derivative_of_the_transition(process, t):
    # Richardson's extrapolation of one-sided differences: error of order h^2.
    states = torch.arange(process.num_states)
    eye, h = torch.eye(process.num_states, dtype=torch.float64), 1e-5
    one, two = ((process.transition(states, f64(t), f64(t + k * h)).T - eye) / (k * h) for k in (1, 2))
    rates = process.rates(f64(t))
    torch.testing.assert_close(2 * one - two, rates, atol=2e-6 * float(rates.abs().max()), rtol=0)


@ALL
@given(t=st.floats(0.05, 0.9))
def test_kolmogorovs_equation(process, t):
    tokens, h = torch.arange(process.vocab_size), 1e-5
    slope = (process.marginal(tokens, f64(t + h)) - process.marginal(tokens, f64(t - h))) / (2 * h)
    torch.testing.assert_close(slope, process.marginal(tokens, f64(t)) @ process.rates(f64(t)).T, atol=1e-7, rtol=1e-7)


@ALL
def test_rates_at_time_one_are_infinite_and_nothing_else(process):
    rates = process.rates(1.0)
    assert not bool(rates.isnan().any())
    assert bool(rates.diagonal()[: process.vocab_size].isinf().all())


@ALL
def test_rates_of_many_times(process):
    t = torch.tensor([[0.1, 0.4], [0.7, 0.9]], dtype=torch.float64)
    assert torch.equal(process.rates(t)[1, 0], process.rates(t[1, 0]))


@ENTRIES
def test_designated_entry_has_the_same_marginals(process):
    chain, token = DesignatedEntry(process), process.vocab_size - 1
    start = torch.nn.functional.one_hot(torch.tensor(token), process.num_states).double()
    times = [0.1, 0.4, 0.7, 0.9]

    def flow(t, p):
        return chain.rates(f64(t)).numpy() @ p

    solution = solve_ivp(flow, (0, times[-1]), start.numpy(), t_eval=times, rtol=1e-10, atol=1e-12)
    for t, column in zip(times, solution.y.T, strict=True):
        expected = process.marginal(torch.tensor(token), f64(t))
        torch.testing.assert_close(torch.tensor(column), expected, atol=1e-8, rtol=0)
        torch.testing.assert_close(chain.transition(torch.tensor(token), 0.0, t), expected, atol=1e-9, rtol=0)


@ENTRIES
@pytest.mark.parametrize(("s", "t"), [(0.2, 0.6), (0.5, 0.999)])
def test_designated_entry_kernel_by_quadrature_is_that_of_its_rates_and_another(process, s, t):
    chain, states = DesignatedEntry(process), torch.arange(process.num_states)
    n = process.num_states

    def flow(u, p):
        return (chain.rates(f64(u)).numpy() @ p.reshape(n, n)).ravel()

    end = solve_ivp(flow, (s, t), torch.eye(n).numpy().ravel(), rtol=1e-10, atol=1e-12, method="LSODA").y[:, -1]
    kernel = chain.transition(states, s, t)
    torch.testing.assert_close(kernel.T, torch.tensor(end.reshape(n, n)), atol=1e-7, rtol=0)
    if t < 0.9:  # later both have forgotten where they were
        assert float((kernel - process.transition(states, f64(s), f64(t))).abs().max()) > 1e-3


@ENTRIES
def test_designated_entry_ends_uniform_over_the_masks(process):
    kernel = DesignatedEntry(process).transition(torch.arange(process.num_states), 0.3, 1.0)
    torch.testing.assert_close(kernel, process.transition(torch.arange(process.num_states), f64(0.3), f64(1.0)))


def test_refresh_rate_of_the_paper():
    process = MultiMask(6, 3, Schedule(rho=0.6))
    t = torch.linspace(0.01, 0.99, 21, dtype=torch.float64)
    v = process.schedule(t)
    gamma = (-v.d_alpha * (1 - v.beta) - (1 - v.alpha) * v.d_beta) / ((1 - v.alpha) * v.beta)
    torch.testing.assert_close(DesignatedEntry(process).refresh_rate(t), gamma)
    assert float(DesignatedEntry(process).refresh_rate(0.0)) == pytest.approx(1.2)  # rho + rho, the limit


@ALL
@given(t=st.floats(0.05, 0.95))
def test_conditional_scores_are_ratios_of_marginals(process, t):
    x_t = torch.tensor([0, *range(process.vocab_size, process.num_states)])
    marginal = process.marginal(torch.tensor(0), f64(t))
    expected = marginal / marginal[x_t][:, None]
    torch.testing.assert_close(process.conditional_scores(torch.zeros_like(x_t), x_t, f64(t)), expected)


@given(t=st.floats(0.01, 0.99))
def test_conditional_scores_as_printed(t):
    """Eqs. (exact_clean_score, exact_mask_score), from the schedule alone."""
    process, x_0, k, j = MultiMask(6, 3, Schedule(rho=0.6)), 4, 2, 0  # the designated mask of 4 is 1
    alpha, beta = 1 - t, (1 - t) ** 0.6
    r = [(1 - beta) / 3, beta + (1 - beta) / 3, (1 - beta) / 3]
    scores = process.conditional_scores(torch.tensor(x_0), torch.tensor(6 + k), f64(t))
    assert float(scores[x_0]) == pytest.approx(alpha / ((1 - alpha) * r[k]))
    assert float(scores[6 + 1]) == pytest.approx(r[1] / r[k])
    assert float(scores[6 + j]) == pytest.approx(1.0)
    assert scores[[0, 1, 2, 3, 5]].tolist() == [0.0] * 5


@ALL
@given(t=st.floats(0.05, 0.95))
def test_model_scores_of_the_exact_prediction_are_the_marginal_scores(process, t):
    """Prop. (marginal_score_identity): with the true posterior, s_theta(y)_{y'} = p_t(y') / p_t(y)."""
    V, x_t = process.vocab_size, torch.arange(process.num_states)
    prior = torch.softmax(torch.randn(V, generator=torch.Generator().manual_seed(3), dtype=torch.float64), 0)
    kernel = process.marginal(torch.arange(V), f64(t))
    if not predicts_posterior(process):
        prediction = prior.expand(len(x_t), V)  # leave one out: nothing else is known
    else:
        joint = (prior[:, None] * kernel).T
        prediction = joint / joint.sum(-1, keepdim=True)
    marginal = prior @ kernel
    scores = process.model_scores(prediction, x_t, f64(t))
    hidden = process.active(x_t)
    torch.testing.assert_close(scores[hidden], (marginal / marginal[:, None])[hidden])
    if not bool(hidden.all()):  # at a visible token the scores are those of that token
        visible = x_t[~hidden]
        torch.testing.assert_close(scores[~hidden], process.conditional_scores(visible, visible, f64(t)))
