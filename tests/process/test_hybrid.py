"""CANDI's hybrid process: noise levels by brute force, draws in law, its step and its loss by plain formulas."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor
from torch.nn import functional as F

from multimdm.process import Hybrid, HybridState, Schedule, Streams, debug_checks, sigma_of_rank
from support.plain_maps import expected_rank
from support.statistics import MUTANT, REJECT, p_of_draws

GPT2 = 50_257
SIZES = pytest.mark.parametrize("V", [5, 100, GPT2])
SCHEDULES = pytest.mark.parametrize("schedule", [Schedule(), Schedule(kind="cosine")], ids=["linear", "cosine"])


def f64(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def dense(state: HybridState, V: int) -> Tensor:
    """The vectors w themselves, for noise that has all V numbers."""
    latent = state.latent
    sparse = (F.one_hot(latent.tokens, V).double() * latent.weights[:, None]).sum(-2)
    return sparse + latent.scale[..., None] * latent.noise.double()


# ------------------------------------------------------------------------ noise levels


@pytest.mark.parametrize("V", [3, 7, 200])
@pytest.mark.parametrize("sigma", [0.3, 0.6, 1.0, 4.0])
def test_the_expected_rank_is_that_of_ranked_vectors(V, sigma):
    w = sigma * torch.randn(40_000, V, generator=generator(), dtype=torch.float64)
    w[:, 0] += 1
    place = w.argsort(dim=-1, descending=True).argsort(dim=-1)[:, 0]  # 0: the clean coordinate is the largest
    share = place.double() / V
    error = float(share.std()) / math.sqrt(len(share))
    assert abs(float(share.mean()) - float(expected_rank(f64(sigma), V))) < 4 * error


def test_the_expected_rank_is_the_integral_over_the_clean_coordinate():
    for V, sigma in ((3, 0.4), (50, 1.0), (GPT2, 0.7)):

        def above(z: float, sigma: float = sigma, V: int = V) -> float:
            return float(stats.norm.pdf(z) * (V - 1) * stats.norm.sf((1 + sigma * z) / sigma) / V)

        value, _ = integrate.quad(above, -12, 12, epsabs=1e-13)
        assert float(expected_rank(f64(sigma), V)) == pytest.approx(value, abs=1e-11)


@SIZES
def test_sigma_of_rank_is_the_inverse(V):
    rank = torch.linspace(1e-4, 0.999 * (V - 1) / (2 * V), 50, dtype=torch.float64)
    sigma = sigma_of_rank(rank, V)
    torch.testing.assert_close(expected_rank(sigma, V), rank, rtol=1e-10, atol=0)
    assert bool((sigma.diff() > 0).all())


@SIZES
@SCHEDULES
@pytest.mark.parametrize("ranks", [(0.01, 0.25), (0.05, 0.25)])
def test_sigma_is_what_a_table_of_ranks_gives(V, schedule, ranks):
    """The published way: a thousand noise levels from 0.2 to 4, their ranks, and linear interpolation."""
    t = torch.linspace(0, 1, 33, dtype=torch.float64)
    levels = torch.linspace(0.2, 4.0, 1000, dtype=torch.float64).numpy()
    table = (V - 1) / V * stats.norm.cdf(-1 / (levels * math.sqrt(2)))
    wanted = ranks[0] + (ranks[1] - ranks[0]) * (1 - schedule(t).alpha)
    plain = torch.from_numpy(np.interp(wanted.numpy(), table, levels))
    torch.testing.assert_close(Hybrid(V, schedule, ranks).sigma(t), plain, rtol=0, atol=2e-5)


def test_noise_levels_of_the_published_settings():
    """Phi^-1 of 0.05 and of 0.25 are -1.6449 and -0.6745."""
    ends = Hybrid(GPT2, ranks=(0.05, 0.25)).sigma(f64(0.0, 1.0))
    torch.testing.assert_close(ends, 1 / (math.sqrt(2) * f64(1.644853627, 0.674489750)), rtol=5e-5, atol=0)


# ----------------------------------------------------------------------- forward law


@SCHEDULES
@pytest.mark.parametrize("t", [0.0, 0.3, 0.8, 1.0])
def test_tokens_are_visible_with_probability_alpha(schedule, t):
    process, x_0 = Hybrid(6, schedule), torch.randint(0, 6, (400, 50), generator=generator(1))
    state = process.corrupt(x_0, t, generator())
    hidden = process.hidden(state)
    assert torch.equal(state.x[~hidden], x_0[~hidden])
    alpha = float(schedule(f64(t)).alpha)
    assert p_of_draws(hidden.long(), f64(alpha, 1 - alpha)) > REJECT
    if 0 < t < 1:
        assert p_of_draws(hidden.long(), f64(alpha - 0.05, 1.05 - alpha)) < MUTANT


@pytest.mark.parametrize("kind", ["generator", "streams"])
def test_vectors_are_one_hots_with_independent_gaussian_noise(kind):
    V, t = 5, 0.6
    process, x_0 = Hybrid(V), torch.randint(0, V, (2000, 20), generator=generator(1))
    source = generator() if kind == "generator" else Streams.spawn(3, len(x_0))
    state = process.corrupt(x_0, t, source)
    eps = (dense(state, V) - F.one_hot(x_0, V)) / process.sigma(f64(t))[0]
    for part in (eps, eps[process.hidden(state)], eps[~process.hidden(state)]):
        assert stats.kstest(part.flatten()[:50_000].numpy(), "norm").pvalue > REJECT
    flat = eps.reshape(-1, V)
    assert float((flat.T @ flat / len(flat) - torch.eye(V)).abs().max()) < 6 / math.sqrt(len(flat))
    near = (eps[:, 1:] * eps[:, :-1]).mean((0, 1))  # neighbours in a sequence
    assert float(near.abs().max()) < 6 / math.sqrt(eps[:, 1:, 0].numel())


def test_every_sequence_has_the_noise_of_its_time():
    process, times = Hybrid(9), f64(0.1, 0.5, 0.9)
    state = process.corrupt(torch.zeros(3, 4, dtype=torch.long), times, generator())
    torch.testing.assert_close(state.latent.scale, process.sigma(times)[:, None])


def test_streams_do_not_depend_on_the_batch():
    process, x_0, t = Hybrid(9, noise_dim=4), torch.randint(0, 9, (6, 5), generator=generator()), torch.rand(6).double()
    whole = process.corrupt(x_0, t, Streams.spawn(1, 6))
    part = process.corrupt(x_0[2:4], t[2:4], Streams.spawn(1, 2, first=2))
    assert torch.equal(whole.x[2:4], part.x)
    assert torch.equal(whole.latent.noise[2:4], part.latent.noise)


def test_the_prior_is_noise_alone():
    V = 7
    process = Hybrid(V)
    state = process.prior((500, 10), generator())
    assert bool(process.hidden(state).all())
    w = dense(state, V) / process.sigma(f64(1.0))[0]
    assert stats.kstest(w.flatten().numpy(), "norm").pvalue > REJECT


# ----------------------------------------------------------------------------- a step


@SCHEDULES
def test_a_step_is_the_update_of_full_vectors(schedule):
    """w -= (sigma_t - sigma_s) (w - onehot) / sigma_s^2, twice, in R^V."""
    V = 6
    process = Hybrid(V, schedule)
    state = process.prior((3, 4), generator())
    w = dense(state, V)
    for number, (t, s) in enumerate([(1.0, 0.7), (0.7, 0.2)]):
        clean = torch.randint(0, V, (3, 4), generator=generator(number))
        sigma_t, sigma_s = process.sigma(f64(t))[0], process.sigma(f64(s))[0]
        w = w - (sigma_t - sigma_s) * (w - F.one_hot(clean, V)) / sigma_s**2
        state = process.reverse_sample(clean, state, s, t, generator(number))
        torch.testing.assert_close(dense(state, V), w, rtol=1e-12, atol=1e-12)


@SCHEDULES
def test_a_step_reveals_as_the_marginals_say(schedule):
    """From 1 - alpha_t hidden to 1 - alpha_s: with probability (t - s) / t under the linear schedule."""
    process, s, t = Hybrid(6, schedule), 0.3, 0.8
    clean = torch.randint(0, 6, (300, 60), generator=generator(1))
    state = process.prior(clean.shape, generator())
    after = process.reverse_sample(clean, state, s, t, generator(5))
    at_s, at_t = schedule(f64(s)), schedule(f64(t))
    reveal = float((at_s.alpha - at_t.alpha) / (1 - at_t.alpha))
    if schedule.kind == "linear":
        assert reveal == pytest.approx((t - s) / t)
    hidden = process.hidden(after)
    assert p_of_draws(hidden.long(), f64(reveal, 1 - reveal)) > REJECT
    assert torch.equal(after.x[~hidden], clean[~hidden])


@SCHEDULES
def test_the_last_step_leaves_nothing_hidden_and_visible_tokens_stay(schedule):
    process, clean = Hybrid(6, schedule), torch.full((50, 40), 3)
    state = process.corrupt(torch.full((50, 40), 1), 0.5, generator())
    after = process.reverse_sample(clean, state, 0.0, 0.5, generator())
    assert torch.equal(after.x, torch.where(process.hidden(state), 3, 1))


# -------------------------------------------------------------- input, loss, bad input


def test_what_is_shown():
    """Half the mask and half the vector over sqrt(1 + sigma^2) where hidden; the token itself elsewhere."""
    V, d = 6, 4
    process, rows = Hybrid(V), torch.randn(V + 1, d, generator=generator(), dtype=torch.float64)
    x_0, t = torch.randint(0, V, (5, 8), generator=generator(1)), torch.linspace(0.1, 0.9, 5, dtype=torch.float64)
    state = process.corrupt(x_0, t, generator(2))
    shown = process.shown(state, t)
    ours = (shown.weights[..., None] * rows[shown.ids]).sum(-2)
    ours = ours + shown.scale[..., None] * (shown.noise.double() @ rows[:V])
    scaled = dense(state, V) @ rows[:V] / torch.sqrt(1 + process.sigma(t)[:, None, None] ** 2)
    plain = torch.where(process.hidden(state)[..., None], 0.5 * rows[V] + 0.5 * scaled, rows[x_0])
    torch.testing.assert_close(ours, plain)


@SCHEDULES
def test_the_loss(schedule):
    process, t = Hybrid(6, schedule), f64(0.2, 0.7)
    log_probs = torch.randn(2, 3, 6, generator=generator(), dtype=torch.float64).log_softmax(-1)
    x_0 = torch.randint(0, 6, (2, 3), generator=generator())
    time = t.clone().requires_grad_()
    (d_alpha,) = torch.autograd.grad(schedule(time).alpha.sum(), time)
    for row in range(2):
        for place in range(3):
            picked = log_probs[row, place, x_0[row, place]]
            plain = picked * d_alpha[row] / (1 - schedule(t).alpha[row])
            torch.testing.assert_close(process.loss(log_probs, x_0, t)[row, place], plain)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Hybrid(2), "vocab_size must be at least 3"),
        (lambda: Hybrid(9, ranks=(0.25, 0.01)), r"ranks must rise within \(0, 0\.4444\)"),
        (lambda: Hybrid(9, ranks=(0.1, 0.45)), "ranks must rise"),
        (lambda: Hybrid(9, noise_dim=0), "noise_dim must be at least 1"),
        (lambda: Hybrid(9, schedule=0.5), "schedule must be a Schedule"),  # pyright: ignore[reportArgumentType]
        (lambda: Hybrid(9).corrupt(torch.zeros(2, 2), 0.5), "x_0 must be an integer tensor"),
        (lambda: Hybrid(9).corrupt(torch.zeros(2, 2).long(), 1.5), "t must lie in"),
        (lambda: Hybrid(9).reverse_sample(torch.zeros(2, 3).long(), Hybrid(9).prior((2, 2)), 0.1, 0.5), "same shape"),
        (lambda: Hybrid(9).reverse_sample(torch.zeros(2, 2).long(), Hybrid(9).prior((2, 2)), 0.5, 0.5), "earlier"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_debug_checks_see_ids():
    with debug_checks(), pytest.raises(ValueError, match="x_0 must hold ids from 0 to 8"):
        Hybrid(9).corrupt(torch.full((1, 1), 9), 0.5)
