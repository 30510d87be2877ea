"""The loss densities: equal to the generic path-space integrand, to other people's, and to the entropy in the end."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from scipy.integrate import solve_ivp

from multimdm.process import MultiMask, Schedule, Uniform, random_balanced
from multimdm.process.base import Process
from support.processes import bayes, multimask_processes, predicts_posterior, random_prediction, small_processes
from support.quadrature import unit_interval

GOLDEN = Path(__file__).parents[1] / "golden"
PROCESSES = small_processes()
ALL = pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
MASKED = pytest.mark.parametrize("process", multimask_processes().values(), ids=multimask_processes())


def f64(t: float) -> torch.Tensor:
    return torch.tensor(t, dtype=torch.float64)


def possible_pairs(process: Process) -> tuple[torch.Tensor, torch.Tensor]:
    """All (x_0, x_t) of positive probability."""
    x_0, x_t = torch.meshgrid(torch.arange(process.vocab_size), torch.arange(process.num_states), indexing="ij")
    keep = (x_0 == x_t) | process.active(x_t)
    return x_0[keep], x_t[keep]


def path_space_integrand(process: Process, probs, x_0, x_t, t) -> torch.Tensor:
    """Eq. (general_single_token_objective_app) at one (y_0, y), from the generator and the scores."""
    rates = process.rates(t)
    true, model = process.conditional_scores(x_0, x_t, t), process.model_scores(probs, x_t, t)
    true_log_true, true_log_model = torch.special.xlogy(true, true), torch.special.xlogy(true, model)
    terms = rates[x_t] * (model - true_log_model + true_log_true - true)
    terms.scatter_(1, x_t[:, None], 0.0)  # y' != y
    return terms.sum(-1)


@ALL
@given(t=st.floats(0.02, 0.98), seed=st.integers(0, 1000))
def test_loss_is_the_path_space_integrand(process, t, seed):
    x_0, x_t = possible_pairs(process)
    log_probs = random_prediction(len(x_0), process.vocab_size, seed=seed)
    loss = process.loss(log_probs, x_0, x_t, f64(t)).total
    brute = path_space_integrand(process, log_probs.exp(), x_0, x_t, f64(t))
    if isinstance(process, MultiMask):
        brute = torch.where(process.active(x_t), brute, 0.0)  # no rate leads into a visible token
    torch.testing.assert_close(loss, brute, atol=1e-10, rtol=1e-10)


@MASKED
@given(t=st.floats(0.02, 0.98))
def test_both_terms_are_the_printed_ones(process, t):
    """Eq. (per_coordinate_loss_main), written as printed."""
    x_0, x_t = possible_pairs(process)
    x_0, x_t = x_0[process.active(x_t)], x_t[process.active(x_t)]
    prediction = random_prediction(len(x_0), process.vocab_size)
    log_probs = prediction
    if process.readout == "context":
        log_probs = bayes(process, prediction.exp(), x_t, f64(t)).log()
    v, V, M = process.schedule(f64(t)), process.vocab_size, process.num_masks
    r = process.marginal(torch.arange(V), f64(t))[:, V:] / (1 - v.alpha)  # [a, k]
    k = x_t - V
    psi = r[x_0] / r[x_0, k][:, None]
    psi_theta = torch.einsum("na,anj->nj", log_probs.exp(), r[:, None, :] / r[:, k][:, :, None])
    bracket = psi * torch.log(psi / psi_theta) + psi_theta - psi
    bracket.scatter_(1, k[:, None], 0.0)
    loss = process.loss(prediction, x_0, x_t, f64(t))
    identification = -v.d_beta / (M * v.beta) * bracket.sum(-1)
    reconstruction = v.d_alpha / (1 - v.alpha) * log_probs.gather(1, x_0[:, None])[:, 0]
    torch.testing.assert_close(loss.reconstruction, reconstruction, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(loss.identification, identification, atol=1e-10, rtol=1e-10)


def test_one_mask_is_mdlms_loss_and_gradient():
    """MDLM: cross-entropy at masked positions times sigma' / (e^sigma - 1) with sigma = -log alpha."""
    process, generator = MultiMask(11, 1), torch.Generator().manual_seed(0)
    x_0 = torch.randint(0, 11, (4, 9), generator=generator)
    t = torch.rand(4, generator=generator, dtype=torch.float64)
    x_t = process.corrupt(x_0, t, generator)
    logits = torch.randn(4, 9, 11, generator=generator, dtype=torch.float64, requires_grad=True)

    ours = process.loss(logits.log_softmax(-1), x_0, x_t, t)
    assert bool((ours.identification == 0).all())
    (our_gradient,) = torch.autograd.grad(ours.total.sum(), logits)

    sigma = -torch.log1p(-t)
    weight = (1 / (1 - t)) / torch.expm1(sigma)
    theirs = torch.nn.functional.cross_entropy(logits.flatten(0, 1), x_0.flatten(), reduction="none").view(4, 9)
    theirs = theirs * weight[:, None] * (x_t == 11)
    (their_gradient,) = torch.autograd.grad(theirs.sum(), logits)
    torch.testing.assert_close(ours.total, theirs)
    torch.testing.assert_close(our_gradient, their_gradient)


def test_uniform_is_duos_loss():
    golden = load_file(GOLDEN / "duo_loss" / "expected.safetensors")
    process = Uniform(golden["logits"].shape[-1])
    loss = process.loss(golden["logits"].log_softmax(-1), golden["x0"], golden["xt"], golden["t"])
    torch.testing.assert_close(loss.total, golden["nll_per_token"], atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("t", [0.01, 0.3, 0.9, 0.999])
def test_uniform_diffusion_is_the_mask_sector_with_a_mask_per_token(t):
    """Identity assignment, M = V, and rho = 1: the identification term is the uniform loss of the posterior."""
    V = 6
    uniform, masked = Uniform(V), MultiMask(V, V)
    x_0, x_t = torch.meshgrid(torch.arange(V), torch.arange(V), indexing="ij")
    leave_one_out = random_prediction(V, V, V)
    posterior = uniform.posterior_weights(leave_one_out.exp(), x_t, f64(t))
    posterior = posterior / posterior.sum(-1, keepdim=True)
    theirs = masked.loss(posterior.log(), x_0, x_t + V, f64(t)).identification
    torch.testing.assert_close(uniform.loss(leave_one_out, x_0, x_t, f64(t)).total, theirs, atol=1e-11, rtol=1e-9)


@ALL
@pytest.mark.parametrize("t", [1e-4, 0.4, 1.0])
def test_gradients(process, t):
    if process.schedule.rho < 0.5 and t == 1.0:
        return  # the term itself diverges there, as its docstring says
    x_0, x_t = possible_pairs(process)
    if t == 1.0 and isinstance(process, MultiMask):
        x_0, x_t = x_0[process.active(x_t)], x_t[process.active(x_t)]
    stride = len(x_0) // 14 + 1  # a few pairs of every kind
    x_0, x_t = x_0[::stride], x_t[::stride]
    logits = random_prediction(len(x_0), process.vocab_size).requires_grad_()

    def total(logits):
        return process.loss(logits.log_softmax(-1), x_0, x_t, f64(t)).total * (t if t < 0.1 else 1)

    assert torch.autograd.gradcheck(total, logits, atol=1e-6, rtol=1e-5)


@ALL
@pytest.mark.parametrize("t", [0.3, 0.999])
def test_gradient_is_that_of_plain_autograd(process, t):
    """The hand-written backward passes against automatic differentiation of the brute-force integrand."""
    x_0, x_t = possible_pairs(process)
    hidden = process.active(x_t)
    x_0, x_t = x_0[hidden], x_t[hidden]
    logits = random_prediction(len(x_0), process.vocab_size).requires_grad_()
    ours = process.loss(logits.log_softmax(-1), x_0, x_t, f64(t)).total
    brute = path_space_integrand(process, logits.softmax(-1), x_0, x_t, f64(t))
    weights = torch.linspace(0.5, 2.0, len(x_0), dtype=torch.float64)
    gradients = [torch.autograd.grad((loss * weights).sum(), logits)[0] for loss in (ours, brute)]
    torch.testing.assert_close(*gradients, atol=1e-9, rtol=1e-7)


def entropy_of(prior: torch.Tensor) -> torch.Tensor:
    return torch.special.entr(prior).sum()


def expected_loss(process: Process, prior: torch.Tensor, predict) -> torch.Tensor:
    """The integral over t of the expected loss of one token, by quadrature."""
    nodes, weights = unit_interval(300)
    x_0, x_t = possible_pairs(process)
    total = f64(0.0)
    for t, weight in zip(nodes, weights, strict=True):
        kernel = process.marginal(torch.arange(process.vocab_size), t)
        loss = process.loss(predict(kernel, x_t).log(), x_0, x_t, t).total
        total = total + weight * (prior[x_0] * kernel[x_0, x_t] * loss).sum()
    return total


@ALL
def test_the_integral_for_the_exact_prediction_is_the_entropy(process):
    prior = random_prediction(process.vocab_size).exp()

    def exact(kernel, x_t):
        if not predicts_posterior(process):
            return prior.expand(len(x_t), -1)
        posterior = prior[:, None] * kernel
        return (posterior / posterior.sum(0)).T[x_t]

    tolerance = 1e-5 if process.schedule.rho < 0.5 else 1e-7
    assert float(expected_loss(process, prior, exact)) == pytest.approx(float(entropy_of(prior)), abs=tolerance)


def sequence_states(num_states: int) -> torch.Tensor:
    """All pairs of states: the state space of sequences of length two."""
    grid = torch.meshgrid(torch.arange(num_states), torch.arange(num_states), indexing="ij")
    return torch.stack(grid, -1).view(-1, 2)


def generated_law(process: Process, prediction: torch.Tensor) -> torch.Tensor:
    """p^_0: the reverse chain with the model's scores, run from the prior at t = 1 to t = 0, on pairs of states."""
    S, V = process.num_states, process.vocab_size
    states = sequence_states(S)

    def reverse_rates(t: float) -> torch.Tensor:
        """Rate from y to y' = forward rate from y' to y times the model's score, one coordinate at a time."""
        forward = process.rates(f64(t))
        scores = process.model_scores(prediction, states, f64(t))  # [S^2, 2, S]
        rates = torch.zeros(S * S, S * S, dtype=torch.float64)
        for index, (first, second) in enumerate(states.tolist()):
            rates[torch.arange(S) * S + second, index] += forward[first] * scores[index, 0]
            rates[first * S + torch.arange(S), index] += forward[second] * scores[index, 1]
        rates.fill_diagonal_(0.0)
        return rates - torch.diag(rates.sum(0))

    start = torch.zeros(S, dtype=torch.float64)
    start[V if process.num_masks else 0 :] = 1 / (process.num_masks or V)
    start = torch.outer(start, start).flatten()
    # The clock tau with t = 1 / (1 + e^tau) slows both ends down.
    solution = solve_ivp(
        lambda tau, p: (
            reverse_rates(1 / (1 + torch.exp(f64(tau)).item())).numpy()
            @ p
            * float(torch.sigmoid(f64(tau)) * torch.sigmoid(-f64(tau)))
        ),
        (-14.0, 16.0),
        start.numpy(),
        method="LSODA",
        rtol=1e-9,
        atol=1e-12,
    )
    end = torch.tensor(solution.y[:, -1]).view(S, S)[:V, :V]
    return end / end.sum()


def sequence_loss(process: Process, prior: torch.Tensor, prediction: torch.Tensor) -> torch.Tensor:
    """The integral over t of the expected loss of a sequence of two tokens, by quadrature."""
    S, V = process.num_states, process.vocab_size
    clean, states = sequence_states(V), sequence_states(S)
    nodes, weights = unit_interval(200)
    total = f64(0.0)
    for t, weight in zip(nodes, weights, strict=True):
        kernel = process.marginal(torch.arange(V), t)
        joint = prior.flatten()[:, None] * kernel[clean[:, :1], states[:, 0]] * kernel[clean[:, 1:], states[:, 1]]
        x_0 = clean[:, None].expand(-1, len(states), -1)
        x_t = states.expand(len(clean), -1, -1)
        log_probs = prediction.log().expand(len(clean), -1, -1, -1)
        loss = process.loss(log_probs, x_0, x_t, t).total.sum(-1)
        total = total + weight * torch.where(joint > 0, joint * loss, 0.0).sum()
    return total


@pytest.mark.parametrize(
    "process", [MultiMask(2, 2), MultiMask(3, 2, Schedule(rho=0.6)), MultiMask(3, 1), Uniform(3)], ids=str
)
def test_kl_upper_bound(process):
    """Thm. (main_kl_upper_bound): the loss above the entropy bounds the divergence of what is generated."""
    V, S = process.vocab_size, process.num_states
    generator = torch.Generator().manual_seed(5)
    prior = torch.softmax(torch.randn(V * V, generator=generator, dtype=torch.float64), 0).view(V, V)
    prediction = torch.softmax(torch.randn(S * S, 2, V, generator=generator, dtype=torch.float64), -1)
    generated = generated_law(process, prediction)
    divergence = float((prior * (prior / generated).log()).sum())
    bound = float(sequence_loss(process, prior, prediction) - entropy_of(prior.flatten()))
    assert divergence > 1e-3
    assert bound >= divergence - 1e-6


@pytest.mark.parametrize("num_masks", [2, 50])
def test_packed_positions_give_the_same_rows(num_masks):
    process, generator = MultiMask(60, num_masks), torch.Generator().manual_seed(0)
    x_0 = torch.randint(0, 60, (3, 8), generator=generator)
    t = torch.rand(3, generator=generator, dtype=torch.float64)
    x_t = process.corrupt(x_0, t, generator)
    log_probs = random_prediction(3, 8, 60)
    whole, active = process.loss(log_probs, x_0, x_t, t), process.active(x_t)
    packed = process.loss(log_probs[active], x_0[active], x_t[active], t[:, None].expand(3, 8)[active])
    assert torch.equal(whole.total[active], packed.total)
    assert bool((whole.total[~active] == 0).all())


@pytest.mark.parametrize("process", [MultiMask(300, 7), Uniform(300)], ids=str)
def test_chunks_do_not_change_the_loss(process, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x_0 = torch.randint(0, 300, (11,), generator=generator)
    x_t = process.corrupt(x_0, 0.6, generator)
    logits = random_prediction(11, 300).requires_grad_()
    results = []
    for entries in (1, 1000, 2**20):
        monkeypatch.setattr("multimdm.process.readout._CHUNK_ENTRIES", entries)
        loss = process.loss(logits.log_softmax(-1), x_0, x_t, f64(0.6)).total.sum()
        results.append((loss.detach(), *torch.autograd.grad(loss, logits)))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0])


def test_the_assignment_matters():
    x_0, log_probs = torch.arange(8), random_prediction(8, 8)
    x_t = torch.full((8,), 8)
    first, second = (
        MultiMask(8, 4, Schedule(), assignment).loss(log_probs, x_0, x_t, f64(0.5)).identification
        for assignment in (None, random_balanced(8, 4, seed=3))
    )
    assert not torch.allclose(first, second)
