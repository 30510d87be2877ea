"""DUO's Gaussian relaxation: its clock by quadrature, its draws in law, and what the truncation costs."""

import math
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from multimdm.process import (
    Schedule,
    Streams,
    Uniform,
    debug_checks,
    relaxed_state,
    relaxed_times,
    sufficient_top,
)
from multimdm.process import relaxation as module
from multimdm.process.draws import pick
from multimdm.process.relaxation import DEFAULT_TOP, distinct_tokens, largest_gaussians
from support.plain_maps import alpha_of_signal
from support.processes import random_prediction
from support.statistics import MUTANT, REJECT, chi_square_p, p_of_draws

RANGE = (-3.55, -1.85)  # DUO's for OpenWebText
TAU = 1e-3
GPT2 = 50_257
SIZES = pytest.mark.parametrize("V", [2, 5, 100, GPT2])


def f64(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gauss_legendre(low: float, high: float, n: int) -> tuple[Tensor, Tensor]:
    x, w = np.polynomial.legendre.leggauss(n)
    return low + (high - low) * torch.tensor((x + 1) / 2), (high - low) * torch.tensor(w / 2)


def same_law_p(first: Tensor, second: Tensor) -> float:
    """The p-value of two samples under one law, by Kolmogorov and Smirnov."""
    result: Any = stats.ks_2samp(first.numpy(), second.numpy(), method="asymp")
    return float(result.pvalue)


# ------------------------------------------------------------------------------ the clock


@SIZES
def test_clock(V):
    u = torch.linspace(0, 1, 11, dtype=torch.float64)
    times = relaxed_times(u, *RANGE, V)
    torch.testing.assert_close(times.gamma[[0, -1]], f64(RANGE[0], RANGE[1]))
    torch.testing.assert_close(times.signal**2 + times.noise**2, torch.ones_like(u))
    torch.testing.assert_close(times.signal / times.noise, times.snr)
    torch.testing.assert_close(times.alpha, alpha_of_signal(times.signal, V), atol=1e-12, rtol=0)
    torch.testing.assert_close(times.alpha + times.one_minus_alpha, torch.ones_like(u), atol=1e-15, rtol=0)
    assert bool((times.alpha.diff() < 0).all())
    assert bool((times.speed > 0).all())


def test_clock_of_one_number_and_of_float32_is_float64():
    for u in (0.25, torch.tensor(0.25), torch.tensor([0.25])):
        times = relaxed_times(u, *RANGE, 5)
        assert times.alpha.dtype == times.speed.dtype == torch.float64
        assert times.alpha.shape == torch.as_tensor(u).shape


@SIZES
@pytest.mark.parametrize("gamma", [-4.0, -1.0, 2.0, 6.0])
def test_speed_is_the_derivative_of_the_transformation(V, gamma):
    with mpmath.workdps(30):
        snr = mpmath.exp(-mpmath.mpf(gamma) / 2)
        points = sorted([-15, *(p - snr for p in (-8, -3, 0, 2, 3, 4, 5, 6, 8, 15)), 0])

        def integrand(y):
            return mpmath.npdf(y) * mpmath.npdf(y + snr) * (mpmath.erfc(-(y + snr) / mpmath.sqrt(2)) / 2) ** (V - 2)

        expected = float(V * mpmath.quad(integrand, points) * snr / 2 * 3)
    assert float(relaxed_times(0.0, gamma, gamma + 3, V).speed) == pytest.approx(expected, rel=1e-10)


@SIZES
@pytest.mark.parametrize("gammas", [RANGE, (-4, 6)])
def test_mean_speed_is_the_alpha_that_is_crossed(V, gammas: tuple[float, float]):
    u, weight = gauss_legendre(0, 1, 100)
    ends = relaxed_times(f64(0, 1), *gammas, V).alpha
    assert float((weight * relaxed_times(u, *gammas, V).speed).sum()) == pytest.approx(float(ends[0] - ends[1]), 1e-10)


def mean_loss(process: Uniform, x_0: int, t: Tensor) -> Tensor:
    """The loss density at times [T], averaged over x_t, of a prediction that depends on x_t and on t."""
    V, T = process.vocab_size, len(t)
    x_t = torch.arange(V).expand(T, V)
    clean = torch.full_like(x_t, x_0)
    visible = process.schedule(t).alpha
    log_probs = torch.log_softmax(random_prediction(V, V) * (1 + visible[:, None, None]), -1)
    losses = process.loss(log_probs, clean, x_t, t).total
    return (process.marginal(clean[:, 0], t) * losses).sum(-1)


@pytest.mark.parametrize("V", [2, 3, 7])
@pytest.mark.parametrize("gammas", [(-3.0, 1.0), (-1, 4)])
@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_mean_loss_over_u_is_the_integral_over_t(V, gammas: tuple[float, float], kind):
    """Whatever the schedule on the right: the loss is one of alpha, and its integral knows no clock."""
    u, weight_u = gauss_legendre(0, 1, 60)
    times = relaxed_times(u, *gammas, V)
    relaxed = float((weight_u * times.speed * mean_loss(Uniform(V), 1, times.one_minus_alpha)).sum())
    ends = relaxed_times(f64(0, 1), *gammas, V)
    low, high = ends.one_minus_alpha.tolist() if kind == "linear" else (torch.acos(ends.alpha) * 2 / math.pi).tolist()
    t, weight_t = gauss_legendre(low, high, 300)  # in t the loss bends sharply at the clean end
    direct = float((weight_t * mean_loss(Uniform(V, Schedule(kind=kind)), 1, t)).sum())
    assert relaxed == pytest.approx(direct, rel=1e-9)


@pytest.mark.parametrize("V", [5, 30_522, GPT2])
def test_duo_construction(V):
    """DUO's alpha is an integral by scipy, its alpha' a forward difference in gamma of step 1e-3."""

    def duo_alpha(gamma: float) -> float:
        snr = math.exp(-gamma / 2)
        wins = lambda z: stats.norm.pdf(z - snr) * stats.norm.cdf(z) ** (V - 1)  # noqa: E731
        value, _ = integrate.quad(wins, -12, 18, points=[snr - 3, snr, snr + 3], epsabs=1e-13, epsrel=1e-13, limit=200)
        return (V * value - 1) / (V - 1)

    width = RANGE[1] - RANGE[0]
    for u in (0.1, 0.5, 0.9):
        times = relaxed_times(u, *RANGE, V)
        gamma, alpha, exact = float(times.gamma), float(times.alpha), -float(times.speed)
        assert alpha == pytest.approx(duo_alpha(gamma), abs=1e-11)
        coarse, fine = (width / step * (duo_alpha(gamma + step) - alpha) - exact for step in (1e-3, 1e-4))
        assert abs(coarse) < 5e-3 * abs(exact)
        assert coarse / fine == pytest.approx(10, rel=0.05)  # of first order in the step
        middle = -float(relaxed_times(u + 5e-4 / width, *RANGE, V).speed)
        assert exact + coarse == pytest.approx(middle, rel=1e-5)  # of second order about the middle


# ------------------------------------------------------------- order statistics and tokens


def order_statistics_p(draw, n: int, k: int) -> list[float]:
    """Phi(z_j) is Beta(n - j + 1, j); given z_j the next is the largest of n - j below it, independently of it."""
    z = draw(torch.rand(100_000, k, generator=generator(), dtype=torch.float64), n)
    below = torch.special.ndtr(z)
    ps = [float(stats.kstest(below[:, j].numpy(), stats.beta(n - j, j + 1).cdf).pvalue) for j in range(k)]
    for j in range(k - 1):
        ratio = (below[:, j + 1] / below[:, j]) ** (n - j - 1)
        level = stats.beta(n - j, j + 1).cdf(below[:, j].numpy())
        cells = pick(ratio.clamp_max(1), 5) * 5 + pick(torch.tensor(level), 5)
        ps.append(p_of_draws(cells, torch.full((25,), 1 / 25)))
    return ps


MISCOUNTED = {
    "one too many": lambda u, n: largest_gaussians(u, n + 1),
    "one too few": lambda u, n: largest_gaussians(u, n - 1),
    "from the second on": lambda u, n: largest_gaussians(torch.cat([u[..., -1:], u], -1), n)[..., 1:],
    "the number left never falls": lambda u, n: torch.special.ndtri(torch.exp(torch.cumsum(torch.log(u) / n, -1))),
}


@pytest.mark.parametrize(("n", "k"), [(1, 1), (4, 4), (20, 5), (GPT2 - 1, 3)])
def test_order_statistics(n, k):
    assert min(order_statistics_p(largest_gaussians, n, k)) > REJECT


@pytest.mark.parametrize("wrong", MISCOUNTED.values(), ids=MISCOUNTED)
def test_order_statistics_reject_mutants(wrong):
    assert min(order_statistics_p(wrong, 8, 4)) < MUTANT


def test_order_statistics_are_finite_and_fall_at_the_ends_of_the_uniforms():
    edges = f64(2.0**-54, 0.5, 1 - 2.0**-53)
    z = largest_gaussians(torch.cartesian_prod(edges, edges, edges), GPT2 - 1)
    assert bool(z.isfinite().all())
    assert bool((z.diff(dim=-1) <= 0).all())


def with_replacement(x_0: Tensor, u: Tensor, vocab_size: int) -> Tensor:
    """A mutant: the others drawn independently of each other."""
    others = (x_0[..., None] + 1 + pick(u, vocab_size - 1)) % vocab_size
    return torch.cat([x_0[..., None], others], -1)


def tokens_p(draw) -> float:
    """The p-value of three of the five others of token 2: each of 5 * 4 * 3 sequences is equally probable."""
    u = torch.rand(200_000, 3, generator=generator(), dtype=torch.float64)
    ids = draw(torch.full((200_000,), 2), u, 6)
    assert bool((ids[:, 0] == 2).all())
    law = torch.zeros(6, 6, 6)
    for a, b, c in torch.cartesian_prod(*[torch.tensor([0, 1, 3, 4, 5])] * 3).tolist():
        law[a, b, c] = 1 / 60 if len({a, b, c}) == 3 else 0.0
    return p_of_draws((ids[:, 1] * 6 + ids[:, 2]) * 6 + ids[:, 3], law)


def test_tokens_are_drawn_without_replacement():
    assert tokens_p(distinct_tokens) > REJECT
    assert tokens_p(with_replacement) < MUTANT


# ------------------------------------------------------------------------- states and weights

V, N, CLEAN = 6, 100_000, 4
TIMES = relaxed_times(0.4, -2, 2, V)
WARM = 0.5  # a temperature at which every weight matters


def states(top: int, tau: float = WARM, source=None, x_0: int = CLEAN):
    ids = torch.full((100, N // 100), x_0)
    return relaxed_state(ids, TIMES.signal, TIMES.noise, V, tau, source or generator(), top)


@pytest.mark.parametrize("top", [1, 3, V - 1, 50])
@pytest.mark.parametrize("source", [generator, lambda: Streams.spawn(5, 100)], ids=["generator", "streams"])
def test_state_follows_the_uniform_process(top, source):
    law = Uniform(V).marginal(torch.tensor(CLEAN), TIMES.one_minus_alpha)
    assert p_of_draws(states(top, source=source()).x_t, law) > REJECT


def test_state_rejects_mutants(monkeypatch):
    law = Uniform(V).marginal(torch.tensor(CLEAN), TIMES.one_minus_alpha)
    assert p_of_draws(states(3, x_0=CLEAN - 1).x_t, law) < MUTANT
    monkeypatch.setattr(module, "largest_gaussians", MISCOUNTED["one too many"])
    assert p_of_draws(states(3).x_t, law) < MUTANT


def test_signal_and_noise_per_sequence_and_per_position():
    u = f64(0.1, 0.9)
    times = relaxed_times(u, -2, 2, V)
    for signal, noise in (
        (times.signal, times.noise),
        (times.signal[:, None].expand(2, N), times.noise[:, None].expand(2, N)),
    ):
        x_t = relaxed_state(torch.full((2, N), CLEAN), signal, noise, V, WARM, generator(), 3).x_t
        for row, lost in zip(x_t, times.one_minus_alpha, strict=True):
            assert p_of_draws(row, Uniform(V).marginal(torch.tensor(CLEAN), lost)) > REJECT


def dense_weights(num: int, V: int, signal: Tensor, noise: Tensor, tau: float, source: torch.Generator) -> Tensor:
    """softmax(w / tau) from all V Gaussians, with CLEAN as the clean token."""
    w = noise * torch.randn(num, V, generator=source, dtype=torch.float64)
    w[:, CLEAN] += signal
    return torch.softmax(w / tau, -1)


def scattered(mixture, V: int) -> Tensor:
    """The weights by token, [positions, V]."""
    weights, ids = mixture.weights.flatten(0, 1), mixture.ids.flatten(0, 1)
    return torch.zeros(len(weights), V, dtype=weights.dtype).scatter_add_(1, ids, weights)


def largest(weights: Tensor, num: int) -> Tensor:
    """The `num` largest weights by token, summing to one; the others are zero."""
    best = weights.topk(num, dim=-1)
    return torch.zeros_like(weights).scatter(-1, best.indices, best.values / best.values.sum(-1, keepdim=True))


def weights_p(found: Tensor, kept: int = V) -> float:
    """The least p-value of several statistics of the weights by token, against the dense computation."""
    dense = largest(dense_weights(N, V, TIMES.signal, TIMES.noise, WARM, generator(9)), kept)
    statistics = {
        "largest": lambda p: p.amax(-1),
        "second": lambda p: p.sort(-1).values[:, -2],
        "least": lambda p: p.amin(-1),
        "clean": lambda p: p[:, CLEAN],
        "another": lambda p: p[:, 0],
        "sum of squares": lambda p: (p**2).sum(-1),
        "product of two others": lambda p: p[:, 1] * p[:, 5],
    }
    return min(same_law_p(statistic(found), statistic(dense)) for statistic in statistics.values())


def test_weights_are_exact_with_every_token():
    mixture, x_t = states(V - 1)
    assert mixture.weights.dtype == torch.float64
    assert mixture.weights.shape == mixture.ids.shape == (100, N // 100, V)
    torch.testing.assert_close(mixture.weights.sum(-1), torch.ones(100, N // 100).double())
    assert bool((mixture.ids.sort(-1).values == torch.arange(V)).all())
    assert bool((scattered(mixture, V).argmax(-1) == x_t.flatten()).all())
    assert bool((mixture.weights.diff(dim=-1) <= 0).all())
    assert weights_p(scattered(mixture, V)) > REJECT


@pytest.mark.parametrize("top", [1, 2, 4])
def test_truncated_weights_are_the_largest_and_do_not_favour_the_clean_token(top):
    mixture, x_t = states(top)
    assert mixture.weights.shape == mixture.ids.shape == (100, N // 100, top + 1)
    assert bool((mixture.ids[..., 0] == x_t).all())
    assert weights_p(scattered(mixture, V), top + 1) > REJECT
    dense = dense_weights(N, V, TIMES.signal, TIMES.noise, WARM, generator(8))
    marked = dense.clone()
    marked[:, CLEAN] = torch.inf  # a mutant: the clean token always kept
    kept = marked.topk(top + 1).indices
    favoured = torch.zeros_like(dense).scatter(1, kept, dense.gather(1, kept))
    assert weights_p(favoured / favoured.sum(-1, keepdim=True), top + 1) < MUTANT


@pytest.mark.parametrize("wrong", [name for name in MISCOUNTED if name != "one too few"])
def test_weights_reject_miscounted_order_statistics(wrong, monkeypatch):
    monkeypatch.setattr(module, "largest_gaussians", MISCOUNTED[wrong])
    assert weights_p(scattered(states(V - 1).mixture, V)) < MUTANT


def test_weights_reject_tokens_with_replacement(monkeypatch):
    monkeypatch.setattr(module, "distinct_tokens", with_replacement)
    assert weights_p(scattered(states(V - 1).mixture, V)) < MUTANT


def test_low_temperature_is_the_hard_state():
    mixture, x_t = states(3, tau=1e-9)
    certain = torch.nn.functional.one_hot(x_t.flatten(), V).double()
    close = (scattered(mixture, V) - certain).abs().amax(-1) < 1e-12
    assert float(close.double().mean()) > 0.9999


def test_smaller_integers_and_numbers():
    x_0 = torch.randint(V, (3, 4), generator=generator(), dtype=torch.int32)
    mixture, x_t = relaxed_state(x_0, 0.8, 0.6, V, 1, generator(), 2)
    same = relaxed_state(x_0.long(), f64(0.8).expand(3), f64(0.6).expand(3), V, 1.0, generator(), 2)
    assert mixture.ids.dtype == x_t.dtype == torch.int64
    torch.testing.assert_close((mixture, x_t), tuple(same))


def test_streams_do_not_depend_on_neighbours():
    x_0 = torch.randint(GPT2, (3, 5), generator=generator())
    times = relaxed_times(f64(0.1, 0.5, 0.9), *RANGE, GPT2)
    all_three = relaxed_state(x_0, times.signal, times.noise, GPT2, TAU, Streams([1, 2, 3]))
    last = relaxed_state(x_0[2:], times.signal[2:], times.noise[2:], GPT2, TAU, Streams([3]))
    assert torch.equal(all_three.mixture.weights[2:], last.mixture.weights)
    assert torch.equal(all_three.mixture.ids[2:], last.mixture.ids)
    assert torch.equal(all_three.x_t[2:], last.x_t)


# ----------------------------------------------------------------------------- truncation


@lru_cache
def gaps(V: int) -> Tensor:
    """z_1 - z_j of the 64 largest of V - 1 Gaussians, at 100,000 positions."""
    z = largest_gaussians(torch.rand(100_000, 64, generator=generator(7), dtype=torch.float64), V - 1)
    return z[:, :1] - z


def cut_too_often(top: int, noise: float, V: int, lost: float) -> float:
    """How often the others after the `top` largest weigh more than `lost`, beside the largest of them alone."""
    weight = torch.exp(gaps(V)[:, top:] * (-noise / TAU)).sum(-1)
    return float((weight > lost).double().mean())


def test_default_top_loses_less_than_a_millionth_at_all_but_one_in_ten_thousand():
    noise = float(relaxed_times(0.0, *RANGE, GPT2).noise)
    assert sufficient_top(GPT2, TAU, noise, lost=1e-6, fraction=1e-4) <= DEFAULT_TOP
    assert cut_too_often(DEFAULT_TOP, noise, GPT2, 1e-6) < 1e-4
    assert cut_too_often(3, noise, GPT2, 1e-6) > 1e-2


@pytest.mark.parametrize(("lost", "fraction"), [(1e-6, 1e-2), (1e-3, 1e-2), (1e-2, 0.3)])
@pytest.mark.parametrize("V", [1000, GPT2])
def test_sufficient_top(V, lost, fraction):
    for noise in (0.15, 0.37, 0.8):
        top = sufficient_top(V, TAU, noise, lost, fraction)
        assert cut_too_often(top, noise, V, lost) < fraction


def test_sufficient_top_grows_with_the_temperature_up_to_every_token():
    tops = [sufficient_top(1000, tau, 0.2) for tau in (1e-4, 1e-3, 2e-3, 1e-2, 1.0)]
    assert tops == sorted(tops)
    assert tops[0] < 6
    assert tops[-1] == 999
    assert sufficient_top(2, TAU, 0.2) == 1


def test_large_vocabulary_against_the_dense_computation(monkeypatch):
    """x_t, and the second and the last weight kept beside the largest, at DUO's temperature."""
    times = relaxed_times(0.5, *RANGE, GPT2)
    source, rows, lost, winners = generator(2), [], [], []
    for _ in range(30):
        weights = dense_weights(50, GPT2, times.signal, times.noise, TAU, source)
        best = weights.topk(DEFAULT_TOP + 1)
        rows.append(best.values)
        lost.append(weights.scatter(1, best.indices, 0.0).sum(-1))
        winners.append(best.indices[:, 0])
    dense, hard, lost = torch.cat(rows), torch.cat(winners), torch.cat(lost)
    assert float(lost.max()) < 1e-6
    assert bool((lost <= (GPT2 - 1 - DEFAULT_TOP) * dense[:, -1] / dense[:, 0]).all())
    x_0 = torch.full((20, 500), CLEAN)

    def p_values(state) -> list[float]:
        found = state.mixture.weights.flatten(0, 1)
        return [same_law_p(found[:, j] / found[:, 0], dense[:, j] / dense[:, 0]) for j in (1, DEFAULT_TOP)]

    lost_alpha = float(times.one_minus_alpha)
    bins = torch.full((20,), lost_alpha / 20, dtype=torch.float64)  # the tokens by their place after the clean one
    law = torch.cat([f64(1 - lost_alpha * (1 - 1 / GPT2)), bins * (1 - 1 / GPT2)])

    def state_p(x_t: Tensor) -> float:
        place = (x_t.flatten() - CLEAN) % GPT2
        return chi_square_p(torch.bincount((place + GPT2 // 20) // (GPT2 // 20 + 1), minlength=21), law)

    state = relaxed_state(x_0, times.signal, times.noise, GPT2, TAU, generator())
    assert min(p_values(state)) > REJECT
    assert min(state_p(state.x_t), state_p(hard)) > REJECT
    monkeypatch.setattr(module, "largest_gaussians", MISCOUNTED["from the second on"])
    mutant = relaxed_state(x_0, times.signal, times.noise, GPT2, TAU, generator())
    assert min(p_values(mutant)) < MUTANT
    assert state_p(mutant.x_t) < MUTANT


# ------------------------------------------------------------------------------ bad input

IDS = torch.zeros(2, 3, dtype=torch.long)
CASES = {
    "tau zero": (lambda: relaxed_state(IDS, 0.8, 0.6, V, 0), "tau must be a finite number above 0; got 0"),
    "tau negative": (lambda: relaxed_state(IDS, 0.8, 0.6, V, -0.1), "tau must be a finite number above 0; got -0.1"),
    "top": (lambda: relaxed_state(IDS, 0.8, 0.6, V, 1.0, top=0), "top must be at least 1; got 0"),
    "vocabulary": (lambda: relaxed_state(IDS, 0.8, 0.6, 1, 1.0), "vocab_size must be at least 2; got 1"),
    "signal": (lambda: relaxed_state(IDS, f64(1, 2, 3), 0.6, V, 1.0), r"signal must be.*\[2, 3\]; got \[3\]"),
    "noise": (lambda: relaxed_state(IDS, 0.8, f64(1, 2, 3), V, 1.0), r"noise must be.*\[2, 3\]; got \[3\]"),
    "streams": (
        lambda: relaxed_state(IDS, 0.8, 0.6, V, 1.0, Streams([1, 2, 3])),
        "the first dimension must be the number of streams, 3",
    ),
    "equal gammas": (lambda: relaxed_times(0.5, -1.0, -1.0, V), "gamma_min must be below gamma_max.*-1.0 and -1.0"),
    "gammas exchanged": (lambda: relaxed_times(0.5, 1, -1, V), "gamma_min must be below gamma_max.*1 and -1"),
    "gamma not a number": (lambda: relaxed_times(0.5, float("nan"), 1, V), "gamma_min must be below gamma_max.*nan"),
    "gamma infinite": (lambda: relaxed_times(0.5, -1, math.inf, V), "both finite; got -1 and inf"),
    "u": (lambda: relaxed_times(1.5, -1, 1, V), r"u must lie in \[0, 1\].*got 1.5"),
    "V of the clock": (lambda: relaxed_times(0.5, -1, 1, 1), "vocab_size must be at least 2; got 1"),
    "lost": (lambda: sufficient_top(V, 1.0, 0.5, lost=1), "lost must lie strictly between 0 and 1; got 1"),
    "fraction": (lambda: sufficient_top(V, 1.0, 0.5, fraction=0), "fraction must lie strictly between 0 and 1; got 0"),
    "noise of the bound": (lambda: sufficient_top(V, 1.0, 0), "noise must be a finite number above 0; got 0"),
}


@pytest.mark.parametrize(("call", "message"), CASES.values(), ids=CASES)
def test_message(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_contents_are_checked_on_request():
    with debug_checks(), pytest.raises(ValueError, match="x_0 must hold ids from 0 to 5"):
        relaxed_state(IDS + V, 0.8, 0.6, V, 1.0)
