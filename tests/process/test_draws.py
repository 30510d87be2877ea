"""Draws follow the exact laws, by chi-square; the same tests reject processes that are slightly wrong."""

import pytest
import torch

from multimdm.process import MultiMask, Process, Schedule, Streams, Uniform, categorical
from multimdm.process.base import NoiseKind
from support.gumbel_law import joint_law
from support.plain_maps import signal_of_alpha
from support.processes import beta_for_alpha, off_by_one, random_prediction
from support.statistics import MUTANT, REJECT, chi_square_p, p_of_draws

N = 200_000
PROCESSES = {
    "M=1": MultiMask(5, 1),
    "M=2": MultiMask(5, 2, Schedule(rho=0.5)),
    "M=5": MultiMask(7, 5, Schedule(rho=2.0)),
    "M=50": MultiMask(60, 50, Schedule(rho=0.4)),
    "uniform": Uniform(6),
}
ALL = pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
SEVERAL = {name: p for name, p in PROCESSES.items() if p.num_masks > 1}
MASKS = pytest.mark.parametrize("process", SEVERAL.values(), ids=SEVERAL)
TIMES = pytest.mark.parametrize("t", [0.02, 0.5, 0.93, 1.0])
GENERATORS = {
    "generator": lambda: torch.Generator().manual_seed(11),
    "streams": lambda: Streams.spawn(11, 100),
}
SOURCES = pytest.mark.parametrize("source", GENERATORS.values(), ids=GENERATORS)


def f64(t: float) -> torch.Tensor:
    return torch.tensor(t, dtype=torch.float64)


def many(token: int) -> torch.Tensor:
    return torch.full((100, N // 100), token)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(12)


# ------------------------------------------------------------------ prior and corruption


@ALL
@SOURCES
def test_prior(process, source):
    draws = process.prior((100, N // 100), source())
    law = process.marginal(torch.tensor(0), f64(1.0))
    assert p_of_draws(draws, law) > REJECT
    wrong = MultiMask(process.vocab_size + 1, process.num_masks + 1) if process.num_masks else Uniform(7)
    assert p_of_draws(wrong.prior((100, N // 100), source()), law) < MUTANT


@ALL
@TIMES
@SOURCES
def test_corrupt(process, t, source):
    token = process.vocab_size - 2
    assert p_of_draws(process.corrupt(many(token), t, source()), process.marginal(torch.tensor(token), f64(t))) > REJECT


@MASKS
@pytest.mark.parametrize("mutate", [off_by_one, beta_for_alpha])
def test_corrupt_rejects_mutants(process, mutate):
    law = process.marginal(torch.tensor(1), f64(0.5))
    assert p_of_draws(mutate(process).corrupt(many(1), 0.5, generator()), law) < MUTANT


@ALL
def test_corrupt_rejects_another_time(process):
    law = process.marginal(torch.tensor(1), f64(0.5))
    assert p_of_draws(process.corrupt(many(1), 0.52, generator()), law) < MUTANT


@ALL
@SOURCES
@pytest.mark.parametrize(("s", "t"), [(0.0, 0.5), (0.3, 0.31), (0.2, 0.9), (0.5, 1.0)])
def test_transition_sample(process, s, t, source):
    states = [process.vocab_size - 2] + ([process.vocab_size] if process.num_masks else [])
    for state in states:
        law = process.transition(torch.tensor(state), f64(s), f64(t))
        assert p_of_draws(process.transition_sample(many(state), s, t, source()), law) > REJECT


@MASKS
@pytest.mark.parametrize("mutate", [off_by_one, beta_for_alpha])
def test_transition_sample_rejects_mutants(process, mutate):
    law = process.transition(torch.tensor(1), f64(0.2), f64(0.6))
    assert p_of_draws(mutate(process).transition_sample(many(1), 0.2, 0.6, generator()), law) < MUTANT


@ALL
def test_corrupt_with_a_time_per_sequence_and_per_position(process):
    x_0 = many(1)
    t = torch.tensor([0.1, 0.8]).repeat(50)
    draws = process.corrupt(x_0, t, generator())
    for start, time in ((0, 0.1), (1, 0.8)):
        assert p_of_draws(draws[start::2], process.marginal(torch.tensor(1), time)) > REJECT
    draws = process.corrupt(x_0.T, t.expand(N // 100, 100), generator())
    for start, time in ((0, 0.1), (1, 0.8)):
        assert p_of_draws(draws[:, start::2], process.marginal(torch.tensor(1), time)) > REJECT


# ---------------------------------------------------------------------- reverse


def reverse_pairs(process: Process) -> list[tuple[int, int]]:
    """(clean, x_t) of every kind: at the designated mask, at another, or (uniform) at itself and elsewhere."""
    if not isinstance(process, MultiMask):
        return [(2, 2), (2, 4)]
    V = process.vocab_size
    home = int(process.designated_mask(torch.tensor(2)))
    others = [k for k in range(V, process.num_states) if k != home]
    return [(2, home), *([(2, others[0])] if others else [])]


@ALL
@SOURCES
@pytest.mark.parametrize(("s", "t"), [(0.2, 0.6), (0.0, 0.4), (0.7, 1.0), (0.45, 0.5)])
def test_reverse_sample(process, source, s, t):
    for clean, x_t in reverse_pairs(process):
        draws = process.reverse_sample(many(clean), many(x_t), s, t, source())
        law = process.posterior(torch.tensor(clean), torch.tensor(x_t), f64(s), f64(t))
        assert p_of_draws(draws, law) > REJECT


@MASKS
@pytest.mark.parametrize("mutate", [off_by_one, beta_for_alpha])
def test_reverse_sample_rejects_mutants(process, mutate):
    clean, x_t = reverse_pairs(process)[0]
    law = process.posterior(torch.tensor(clean), torch.tensor(x_t), f64(0.2), f64(0.6))
    assert p_of_draws(mutate(process).reverse_sample(many(clean), many(x_t), 0.2, 0.6, generator()), law) < MUTANT


@ALL
def test_reverse_sample_rejects_exchanged_times(process):
    clean, x_t = reverse_pairs(process)[-1]
    law = process.posterior(torch.tensor(clean), torch.tensor(x_t), f64(0.2), f64(0.6))
    draws = process.reverse_sample(many(clean), many(x_t), f64(0.6), f64(0.2), generator())
    assert p_of_draws(draws, law) < MUTANT


@ALL
def test_hypotheses_then_kernel_is_the_reverse_kernel(process):
    s, t = 0.3, 0.7
    _, x_t = reverse_pairs(process)[-1]
    prediction = random_prediction(process.vocab_size).exp()
    state, rows = many(x_t), prediction.expand(100, N // 100, -1)
    source = generator()
    clean = categorical(process.posterior_weights(rows, state, t), source)
    law = process.reverse(prediction, torch.tensor(x_t), s, t)
    assert p_of_draws(process.reverse_sample(clean, state, s, t, source), law) > REJECT


def test_forgetting_the_leave_one_out_meaning_is_rejected():
    process, s, t, x_t = Uniform(6), 0.3, 0.7, 4
    prediction = random_prediction(6).exp()
    source = generator()
    clean = categorical(prediction.expand(100, N // 100, -1), source)
    law = process.reverse(prediction, torch.tensor(x_t), s, t)
    assert p_of_draws(process.reverse_sample(clean, many(x_t), s, t, source), law) < MUTANT


@ALL
def test_visible_tokens_stay_and_the_last_step_leaves_no_mask(process):
    x_t = process.corrupt(many(1), 0.5, generator())
    clean = many(3)
    x_s = process.reverse_sample(clean, x_t, 0.2, 0.5, generator())
    if process.num_masks:
        visible = ~process.active(x_t)
        assert torch.equal(x_s[visible], x_t[visible])
    x_s = process.reverse_sample(clean, x_t, 0.0, 0.5, generator())
    assert torch.equal(x_s, torch.where(process.active(x_t), clean, x_t))


# ------------------------------------------------------------------------ paths


def coupled(process: Process, times: list[float], token: int, source, noise: NoiseKind = "gumbel") -> torch.Tensor:
    return process.couple(many(token), times, source, noise=noise)


NOISES = [*((p, "gumbel") for p in PROCESSES.values()), (PROCESSES["uniform"], "gaussian")]
COUPLINGS = pytest.mark.parametrize(("process", "noise"), NOISES, ids=[f"{p} {n}" for p, n in NOISES])


@COUPLINGS
@TIMES
@SOURCES
def test_coupled_paths_have_the_marginals(process, noise, t, source):
    (draws,) = coupled(process, [t], 2, source(), noise)
    assert p_of_draws(draws, process.marginal(torch.tensor(2), f64(t))) > REJECT


@MASKS
@pytest.mark.parametrize("mutate", [off_by_one, beta_for_alpha])
def test_coupled_paths_reject_mutants(process, mutate):
    (draws,) = coupled(mutate(process), [0.5], 2, generator())
    assert p_of_draws(draws, process.marginal(torch.tensor(2), f64(0.5))) < MUTANT


def pair_p(states: torch.Tensor, law: torch.Tensor) -> float:
    """The p-value of pairs of states [2, ...] under their joint law."""
    first, second = states.flatten(1)
    return p_of_draws(first * law.shape[1] + second, law)


@COUPLINGS
def test_coupled_paths_have_the_joint_law_of_two_times(process, noise):
    """Against the exact law of shared Gumbels; by Thm. (duo_gumbel_path) it is that of the Gaussian paths too."""
    times = [0.35, 0.75]
    law = joint_law(*(process.marginal(torch.tensor(2), f64(t)) for t in times))
    torch.testing.assert_close(law.sum(), f64(1.0))
    torch.testing.assert_close(law.sum(1), process.marginal(torch.tensor(2), f64(times[0])))
    assert pair_p(coupled(process, times, 2, generator(), noise), law) > REJECT
    assert pair_p(coupled(process, times[::-1], 2, generator(), noise), law) < MUTANT
    independent = torch.stack([process.corrupt(many(2), t, torch.Generator().manual_seed(int(100 * t))) for t in times])
    assert pair_p(independent, law) < MUTANT


@MASKS
@pytest.mark.parametrize("mutate", [off_by_one, beta_for_alpha])
def test_the_joint_law_rejects_mutants(process, mutate):
    law = joint_law(*(process.marginal(torch.tensor(2), f64(t)) for t in (0.35, 0.75)))
    assert pair_p(coupled(mutate(process), [0.35, 0.75], 2, generator()), law) < MUTANT


@pytest.mark.parametrize("noise", ["gumbel", "gaussian"])
def test_uniform_paths_have_the_finite_dimensional_law_of_the_theorem(noise):
    """Thm. (duo_gumbel_path): stay until t_r, then jump for good to one of the others, uniformly."""
    process, times, token = Uniform(5), [0.2, 0.5, 0.9], 3
    states = coupled(process, times, token, generator(), noise).flatten(1)
    stay = [1.0, *(float(process.marginal(torch.tensor(token), f64(t))[token]) for t in times)]
    law = torch.zeros(5, 5, 5, dtype=torch.float64)
    law[token, token, token] = stay[3]
    for other in (j for j in range(5) if j != token):
        law[other, other, other] = (stay[0] - stay[1]) / 4
        law[token, other, other] = (stay[1] - stay[2]) / 4
        law[token, token, other] = (stay[2] - stay[3]) / 4
    code = states[0] * 25 + states[1] * 5 + states[2]
    assert chi_square_p(torch.bincount(code, minlength=125), law) > REJECT


@COUPLINGS
def test_times_per_sequence(process, noise):
    times = torch.tensor([[0.1, 0.6], [0.6, 0.1]], dtype=torch.float64).repeat(1, 50)
    states = process.couple(many(2), times, generator(), noise=noise)
    assert states.shape == (2, 100, N // 100)
    for t, places in ((0.1, ((0, 0), (1, 1))), (0.6, ((0, 1), (1, 0)))):  # (which time, sequences from where)
        drawn = torch.cat([states[row, start::2] for row, start in places])
        assert p_of_draws(drawn, process.marginal(torch.tensor(2), f64(t))) > REJECT


# ---------------------------------------------------------------- shape of paths


FEW_JUMPS = [
    (MultiMask(6, 1), "gumbel", 1),
    (MultiMask(6, 1, Schedule(kind="cosine")), "gumbel", 1),
    (MultiMask(6, 2, Schedule(rho=0.2)), "gumbel", 2),
    (MultiMask(6, 4, Schedule(rho=1.0)), "gumbel", 2),
    (MultiMask(60, 50, Schedule(rho=0.7, kind="cosine")), "gumbel", 2),
    (Uniform(6), "gumbel", 1),
    (Uniform(6), "gaussian", 1),
]


@pytest.mark.parametrize(("process", "noise", "most"), FEW_JUMPS, ids=[f"{p} {n}" for p, n, _ in FEW_JUMPS])
def test_paths_jump_rarely_and_never_return(process, noise, most):
    """Prop. (mm_gumbel_two_jumps)."""
    x_0 = torch.randint(0, 6, (2000,), generator=generator())
    states = process.couple(x_0, torch.linspace(0, 1, 201, dtype=torch.float64), generator(), noise=noise)
    jumps = (states[1:] != states[:-1]).sum(0)
    assert int(jumps.max()) == most  # attained, and not exceeded
    assert torch.equal(states[0], x_0)
    gone = (states != x_0).cummax(0).values
    assert bool((states != x_0)[gone].all())


@COUPLINGS
def test_the_path_of_given_noise_is_the_coupled_path(process, noise):
    x_0 = torch.randint(0, 5, (40, 50), generator=generator())
    states = process.couple(x_0, [0.0, 0.3, 1.0], generator(), noise=noise)
    given = process.noise(x_0.shape, generator(), noise=noise)
    for state, t in zip(states, [0.0, 0.3, 1.0], strict=True):
        assert torch.equal(process.path(x_0, given, t), state)


@COUPLINGS
def test_reduced_noise_means_what_the_full_noise_means(process, noise):
    """`noise_of` keeps exactly what the argmax over all states needs, for every clean token."""
    n, V = 300, process.vocab_size
    candidates = torch.arange(V).expand(n, V)
    if noise == "gaussian":
        full = torch.randn(n, V, dtype=torch.float64, generator=generator())
        reduced = process.gaussian_noise_of(full, candidates)
    else:
        full = torch.empty(n, process.num_states, dtype=torch.float64).exponential_(generator=generator())
        reduced = process.noise_of(full, candidates)
    for t in (0.2, 0.6, 1.0):
        if noise == "gaussian":
            signal = signal_of_alpha(f64(1 - t), V)
            scores = signal * torch.eye(V) + (1 - signal**2).sqrt() * full[:, None]
        else:
            scores = process.marginal(candidates, f64(t)).log() - full[:, None].log()
        assert torch.equal(process.path(candidates, reduced, t), scores.argmax(-1))
