"""Marginals, transitions, posteriors and reverse kernels are what probability theory says they are."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from multimdm.process import MultiMask, Process, Uniform
from support.processes import bayes, multimask_processes, random_prediction, small_processes

PROCESSES = small_processes()
ALL = pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
MASKED = pytest.mark.parametrize("process", multimask_processes().values(), ids=multimask_processes())
TIMES = st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3, unique=True).map(sorted)
GOLDEN = Path(__file__).parents[1] / "golden"


def f64(t: float) -> torch.Tensor:
    return torch.tensor(t, dtype=torch.float64)


def tokens(process: Process) -> torch.Tensor:
    return torch.arange(process.vocab_size)


def states(process: Process) -> torch.Tensor:
    return torch.arange(process.num_states)


def pairs(process: Process) -> tuple[torch.Tensor, torch.Tensor]:
    """All (x_0, x_t) of positive probability."""
    x_0, x_t = (grid.flatten() for grid in torch.meshgrid(tokens(process), states(process), indexing="ij"))
    possible = (x_0 == x_t) | process.active(x_t)
    return x_0[possible], x_t[possible]


def assert_distribution(probs: torch.Tensor) -> None:
    assert bool((probs >= 0).all())
    torch.testing.assert_close(probs.sum(-1), torch.ones_like(probs[..., 0]))


@ALL
@given(times=TIMES)
def test_marginals_and_transitions_are_distributions_and_compose(process, times):
    s, u, t = map(f64, times)
    assert_distribution(process.marginal(tokens(process), t))
    s_to_u, u_to_t, s_to_t = (process.transition(states(process), *pair) for pair in ((s, u), (u, t), (s, t)))
    assert_distribution(s_to_t)
    torch.testing.assert_close(s_to_u @ u_to_t, s_to_t)  # Chapman-Kolmogorov
    torch.testing.assert_close(process.marginal(tokens(process), s) @ s_to_t, process.marginal(tokens(process), t))


@ALL
@given(times=st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=2, unique=True).map(sorted))
def test_posterior_is_bayes_rule(process, times):
    s, t = map(f64, times)
    x_0, x_t = pairs(process)
    posterior = process.posterior(x_0, x_t, s, t)
    assert_distribution(posterior)
    forward = process.transition(states(process), s, t)  # [x_s, x_t]
    at_s, at_t = process.marginal(x_0, s), process.marginal(x_0, t)
    seen = at_t.gather(1, x_t[:, None])
    joint = at_s * forward[:, x_t].T
    possible = seen[:, 0] > 0  # at t = 1 nothing is visible
    torch.testing.assert_close((posterior * seen)[possible], joint[possible])


@ALL
def test_posterior_at_time_zero_is_the_clean_token(process):
    x_0, x_t = pairs(process)
    kernel = process.posterior(x_0, x_t, 0.0, 0.3)
    assert torch.equal(kernel, torch.nn.functional.one_hot(x_0, process.num_states).to(kernel))


@MASKED
@given(times=st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=2, unique=True).map(sorted))
def test_reverse_averages_the_posterior(process, times):
    s, t = map(f64, times)
    x_t = torch.arange(process.vocab_size, process.num_states)
    probs = random_prediction(len(x_t), process.vocab_size).exp()
    a = tokens(process).expand(len(x_t), -1)
    each = process.posterior(a, x_t[:, None].expand_as(a), s, t)
    kernel = process.reverse(probs, x_t, s, t)
    assert_distribution(kernel)
    posterior = probs if process.readout == "posterior" else bayes(process, probs, x_t, t)
    torch.testing.assert_close(kernel, torch.einsum("na,nas->ns", posterior, each))


@MASKED
def test_reverse_keeps_visible_tokens(process):
    x_t = tokens(process)
    kernel = process.reverse(random_prediction(len(x_t), process.vocab_size).exp(), x_t, 0.2, 0.6)
    assert torch.equal(kernel, torch.nn.functional.one_hot(x_t, process.num_states).double())


@pytest.mark.parametrize("V", [2, 5, 40])
@given(times=st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=2, unique=True).map(sorted))
def test_uniform_reverse_averages_over_the_posterior_of_a_leave_one_out_prediction(V, times):
    s, t = map(f64, times)
    process = Uniform(V)
    x_t = tokens(process)
    leave_one_out = random_prediction(V, V).exp()
    likelihood = process.marginal(tokens(process), t).T  # [x_t, a]: p_t(x_t | a)
    posterior = leave_one_out * likelihood
    posterior = posterior / posterior.sum(-1, keepdim=True)
    weights = process.posterior_weights(leave_one_out, x_t, t)
    torch.testing.assert_close(weights / weights.sum(-1, keepdim=True), posterior)
    a = tokens(process).expand(V, -1)
    each = process.posterior(a, x_t[:, None].expand_as(a), s, t)
    kernel = process.reverse(leave_one_out, x_t, s, t)
    assert_distribution(kernel)
    torch.testing.assert_close(kernel, torch.einsum("na,nas->ns", posterior, each))


@ALL
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(t=st.floats(1e-3, 1.0))
def test_posterior_logits_are_the_logarithms_of_the_posterior_weights(process, dtype, t):
    """Up to a number, for logits that are not normalised; and so are their slopes."""
    x_t = states(process)
    logits = (2 + random_prediction(len(x_t), process.vocab_size)).to(dtype)
    weights = process.posterior_weights(logits.exp(), x_t, f64(t))
    found = process.posterior_logits(logits.requires_grad_(), x_t, f64(t))
    torch.testing.assert_close(found.softmax(-1), weights / weights.sum(-1, keepdim=True), rtol=2e-5, atol=1e-7)
    (slope,) = torch.autograd.grad(found.sum(), logits)
    assert torch.equal(slope, torch.ones_like(slope))


@pytest.mark.parametrize("V", [2, 5, 40])
@given(t=st.floats(1e-3, 1.0))
def test_uniform_posterior_logits_are_bayes_rule(V, t):
    process, leave_one_out = Uniform(V), random_prediction(V, V)
    likelihood = process.marginal(tokens(process), f64(t)).T  # [x_t, a]: p_t(x_t | a)
    expected = leave_one_out.exp() * likelihood
    found = process.posterior_logits(leave_one_out, tokens(process), f64(t))
    torch.testing.assert_close(found.softmax(-1), expected / expected.sum(-1, keepdim=True))


def test_posterior_logits_know_the_time_of_every_position():
    process, x_t = Uniform(5), torch.tensor([[0, 1, 2], [3, 4, 0]])
    logits, t = random_prediction(2, 3, 5), torch.linspace(0.1, 0.9, 6, dtype=torch.float64).view(2, 3)
    whole, by_sequence = process.posterior_logits(logits, x_t, t), process.posterior_logits(logits, x_t, t[:, 0])
    for b in range(2):
        torch.testing.assert_close(by_sequence[b], process.posterior_logits(logits[b], x_t[b], t[b, 0]))
        for position in range(3):
            one = process.posterior_logits(logits[b, position], x_t[b, position], t[b, position])
            torch.testing.assert_close(whole[b, position], one)


def test_uniform_reverse_is_duos_kernel():
    golden = load_file(GOLDEN / "duo_loss" / "expected.safetensors")
    process = Uniform(golden["logits"].shape[-1])
    kernel = process.reverse(golden["logits"].softmax(-1), golden["xt"], golden["s"], golden["t"])
    torch.testing.assert_close(kernel, golden["posterior_s_given_t"], atol=1e-10, rtol=1e-8)


def test_one_mask_is_masked_diffusion():
    process, x = MultiMask(6, 1), torch.arange(6)
    marginal = process.marginal(x, f64(0.3))
    torch.testing.assert_close(marginal[:, :6], 0.7 * torch.eye(6, dtype=torch.float64))
    torch.testing.assert_close(marginal[:, 6], torch.full((6,), 0.3, dtype=torch.float64))
    mask = torch.full((6,), 6)
    kernel = process.posterior(x, mask, f64(0.2), f64(0.8))
    torch.testing.assert_close(kernel.gather(1, x[:, None])[:, 0], torch.full((6,), 0.6 / 0.8, dtype=torch.float64))


@ALL
def test_time_may_be_per_batch_sequence_or_position(process):
    x_0 = torch.randint(0, process.vocab_size, (3, 4), generator=torch.Generator().manual_seed(0))
    t = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    whole = process.marginal(x_0, t)
    for b in range(3):
        torch.testing.assert_close(process.marginal(x_0, t[:, 0])[b], process.marginal(x_0[b], t[b, 0]))
        for position in range(4):
            torch.testing.assert_close(whole[b, position], process.marginal(x_0[b, position], t[b, position]))


@ALL
def test_results_take_the_dtype_of_the_time_or_of_the_probabilities(process):
    x_0 = torch.zeros(2, dtype=torch.long)
    assert process.marginal(x_0, 0.5).dtype == torch.float32
    assert process.marginal(x_0, f64(0.5)).dtype == torch.float64
    for dtype in (torch.float32, torch.float64):
        probs = torch.full((2, process.vocab_size), 1 / process.vocab_size, dtype=dtype)
        assert process.reverse(probs, process.prior((2,)), 0.1, 0.5).dtype == dtype
        assert process.loss(probs.log(), x_0, process.corrupt(x_0, 1.0), 1.0).total.dtype == dtype
