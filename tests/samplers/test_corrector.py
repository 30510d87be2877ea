"""The corrector keeps every marginal, exactly; its draws follow the kernel for which that is proved."""

import pytest
import torch

from multimdm.process import MultiMask, Schedule, Uniform
from multimdm.samplers import Ancestral, generate, most_remasked, remask_sample, time_grid
from support.oracle import Oracle, composed_law, pairs
from support.statistics import MUTANT, REJECT, p_of_draws

N = 40_000
PROCESSES = {
    "M=1": MultiMask(4, 1),
    "M=2": MultiMask(4, 2, Schedule(rho=0.5)),
    "M=3": MultiMask(5, 3, Schedule(rho=2.0, kind="cosine")),
}
ALL = pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
TIMES = pytest.mark.parametrize(("s", "t"), [(0.5, 0.75), (0.3, 1.0), (0.0, 0.4), (0.1, 0.2), (0.7, 0.9)])


def f64(t: float) -> torch.Tensor:
    return torch.tensor(t, dtype=torch.float64)


def kernel_given(process: MultiMask, x_0: torch.Tensor, s: float, t: float, sigma: float) -> torch.Tensor:
    """q_sigma(x_s | x_t, x_0) for all x_t, [..., S, S], written out from the process's own kernels.

    Rows of masks: the bridge of the masks is that part of the posterior which stays masked, normalised.
    """
    V, S = process.vocab_size, process.num_states
    at_s, at_t = process.schedule(f64(s)), process.schedule(f64(t))
    states = torch.arange(S).expand(*x_0.shape, S)
    clean = x_0[..., None].expand_as(states)
    kernel = torch.zeros(*states.shape, S, dtype=torch.float64)
    reveal = ((at_s.alpha - (1 - sigma) * at_t.alpha) / at_t.one_minus_alpha).item()
    masks = torch.where(process.active(states), states, V)  # visible rows are overwritten
    if s > 0:
        posterior = process.posterior(clean, masks, f64(s), f64(t))
        bridge = posterior[..., V:] / posterior[..., V:].sum(-1, keepdim=True)
        kernel[..., V:] = (1 - reveal) * bridge
    kernel.scatter_(-1, clean[..., None], reveal)
    own = process.marginal(states.clamp_max(V - 1), f64(s))  # alpha_s at the token, (1 - alpha_s) r_s at the masks
    r_s = own[..., V:] / own[..., V:].sum(-1, keepdim=True) if s > 0 else torch.zeros_like(own[..., V:])
    visible = torch.zeros_like(kernel)
    visible[..., V:] = sigma * r_s
    visible.scatter_(-1, states[..., None], 1 - sigma)
    return torch.where(process.active(states)[..., None], kernel, visible)


def shares(process: MultiMask, s: float, t: float) -> list[float]:
    bound = most_remasked(process, s, t)
    return [0.0, 0.3 * bound, bound]


@ALL
@TIMES
def test_marginals_are_kept_exactly(process, s, t):
    tokens = torch.arange(process.vocab_size)
    for sigma in shares(process, s, t):
        kernel = kernel_given(process, tokens, s, t, sigma)
        assert bool((kernel >= -1e-12).all())
        torch.testing.assert_close(kernel.sum(-1), torch.ones_like(kernel[..., 0]))
        moved = torch.einsum("ax,axy->ay", process.marginal(tokens, f64(t)), kernel)
        torch.testing.assert_close(moved, process.marginal(tokens, f64(s)), rtol=1e-12, atol=1e-14)


def test_beyond_the_bound_no_kernel_keeps_them():
    process, s, t = MultiMask(4, 2), 0.1, 0.2
    beyond = 1.01 * most_remasked(process, s, t)
    assert float(kernel_given(process, torch.arange(4), s, t, beyond).min()) < 0
    with pytest.raises(ValueError, match=r"sigma must be from 0 to 0\.125 to keep the marginals"):
        remask_sample(process, torch.zeros(3, dtype=torch.long), torch.zeros(3, dtype=torch.long), s, t, beyond)


@ALL
@TIMES
def test_draws(process, s, t):
    clean = torch.tensor(2)
    masks = range(process.vocab_size, process.num_states)
    for sigma in shares(process, s, t):
        law = kernel_given(process, clean, s, t, sigma)
        for x_t in (2, *masks):
            source = torch.Generator().manual_seed(5)
            draws = remask_sample(process, clean.expand(N), torch.full((N,), x_t), s, t, sigma, source)
            assert p_of_draws(draws, law[x_t].clamp_min(0)) > REJECT


def test_wrong_correctors_are_rejected():
    """The reveal left as it was; and masks drawn uniformly instead of from r_s of the token."""
    process, s, t, sigma = PROCESSES["M=2"], 0.5, 0.75, 0.6
    law = kernel_given(process, torch.tensor(2), s, t, sigma)
    source = torch.Generator().manual_seed(5)
    clean, hidden = torch.full((N,), 2), torch.full((N,), 4)
    assert p_of_draws(process.reverse_sample(clean, hidden, s, t, source), law[4]) < MUTANT
    again = remask_sample(process, clean, clean, s, t, sigma, source)
    anywhere = torch.where(process.active(again), process.prior((N,), source), again)
    assert p_of_draws(again, law[2]) > REJECT
    assert p_of_draws(anywhere, law[2]) < MUTANT


@ALL
def test_whole_runs_follow_the_composed_law(process):
    times, stated = time_grid("uniform", 4), 0.4
    oracle = Oracle(process)

    def kernel(prediction, x_t, s, t):
        sigma = min(stated, most_remasked(process, s, t))
        given = kernel_given(process, torch.arange(process.vocab_size), s, t, sigma)  # [V, S, S]
        moved = torch.einsum("...a,a...s->...s", prediction, given[:, x_t])
        return torch.where(process.active(x_t)[..., None], moved, given[0][x_t])

    step = Ancestral(times, corrector=stated)
    nothing = torch.zeros(N, 2, dtype=torch.long)
    result = generate(oracle, process, step, nothing, generator=torch.Generator().manual_seed(6))
    assert p_of_draws(pairs(result.ids, process.vocab_size), composed_law(oracle, times, kernel)) > REJECT
    assert result.nfe == 4


def test_uniform_states_have_no_corrector():
    with pytest.raises(ValueError, match="process must have masks for the corrector; got Uniform"):
        remask_sample(Uniform(4), torch.zeros(2, dtype=torch.long), torch.zeros(2, dtype=torch.long), 0.2, 0.5, 0.1)
