"""A time per batch, per sequence or per position: the same as one call for each."""

import pytest
import torch

from multimdm.process import Process, Streams, debug_checks
from support.processes import random_prediction, small_processes

PROCESSES = {name: p for name, p in small_processes().items() if p.num_masks < 50}
ALL = pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
B, L = 3, 4
GENERATOR = torch.Generator().manual_seed(0)
T_POSITION = 0.5 + 0.5 * torch.rand(B, L, dtype=torch.float64, generator=GENERATOR)
S_POSITION = T_POSITION * torch.rand(B, L, dtype=torch.float64, generator=GENERATOR)
TIMES = {
    "per position": (S_POSITION, T_POSITION),
    "per sequence": (S_POSITION[:, 0], T_POSITION[:, 0]),
    "s per sequence, t per position": (torch.full((B,), 0.3, dtype=torch.float64), T_POSITION),
    "s a number": (0.3, T_POSITION[:, 1]),
}
EVERY = pytest.mark.parametrize(("s", "t"), TIMES.values(), ids=TIMES)


def at(time: float | torch.Tensor, b: int, position: int) -> torch.Tensor:
    time = torch.as_tensor(time, dtype=torch.float64)
    return time if time.ndim == 0 else time[b] if time.ndim == 1 else time[b, position]


def batch(process: Process, t) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x_0 = torch.randint(0, process.vocab_size, (B, L), generator=torch.Generator().manual_seed(1))
    x_t = process.corrupt(x_0, t, torch.Generator().manual_seed(2))
    return x_0, x_t, random_prediction(B, L, process.vocab_size)


def results(process: Process, x_0, x_t, log_probs, s, t) -> dict[str, torch.Tensor]:
    """Everything that depends on times, for ids of any shape."""
    return {
        "marginal": process.marginal(x_0, t),
        "transition": process.transition(x_t, s, t),
        "posterior": process.posterior(x_0, x_t, s, t),
        "reverse": process.reverse(log_probs.exp(), x_t, s, t),
        "conditional_scores": process.conditional_scores(x_0, x_t, t),
        "model_scores": process.model_scores(log_probs.exp(), x_t, t),
        "posterior_weights": process.posterior_weights(log_probs.exp(), x_t, t),
        "loss": process.loss(log_probs, x_0, x_t, t).total,
    }


@ALL
@EVERY
def test_kernels_scores_and_loss(process, s, t):
    x_0, x_t, log_probs = batch(process, t)
    with debug_checks():
        whole = results(process, x_0, x_t, log_probs, s, t)
    for b in range(B):
        for position in range(L):
            one_0, one_t, row = x_0[b, position], x_t[b, position], log_probs[b, position]
            at_s, at_t = at(s, b, position), at(t, b, position)
            alone = results(process, one_0, one_t, row, at_s, at_t)
            for name, value in alone.items():
                torch.testing.assert_close(whole[name][b, position], value, msg=lambda m, name=name: f"{name}: {m}")


@ALL
@EVERY
def test_draws(process, s, t):
    """With one stream per position, a draw is a function of the position's own times."""
    x_0, x_t, _ = batch(process, t)
    streams = range(B * L)
    t_flat = torch.as_tensor(t).reshape(*torch.as_tensor(t).shape, *[1] * (2 - torch.as_tensor(t).ndim)).expand(B, L)
    s_flat = torch.as_tensor(s).reshape(*torch.as_tensor(s).shape, *[1] * (2 - torch.as_tensor(s).ndim)).expand(B, L)
    corrupted = process.corrupt(x_0.flatten(), t_flat.flatten(), Streams(list(streams)))
    reversed_ = process.reverse_sample(
        x_0.flatten(), x_t.flatten(), s_flat.flatten(), t_flat.flatten(), Streams(list(streams))
    )
    for index in streams:
        b, position = divmod(index, L)
        one_0, one_t = x_0[b, position].reshape(1), x_t[b, position].reshape(1)
        at_s, at_t = at(s, b, position), at(t, b, position)
        assert int(process.corrupt(one_0, at_t, Streams([index]))) == int(corrupted[index])
        assert int(process.reverse_sample(one_0, one_t, at_s, at_t, Streams([index]))) == int(reversed_[index])


@ALL
def test_coupled_paths(process):
    x_0 = torch.randint(0, process.vocab_size, (B, L), generator=torch.Generator().manual_seed(1))
    for times in (S_POSITION[:, :1].T, torch.stack([S_POSITION, T_POSITION])):
        states = process.couple(x_0, times, Streams([5, 6, 7]))
        noise = process.noise(x_0.shape, Streams([5, 6, 7]))
        for state, t in zip(states, times, strict=True):
            assert torch.equal(state, process.path(x_0, noise, t))
        for b in range(B):
            alone = process.couple(x_0[b : b + 1], times[:, b : b + 1], Streams([5 + b]))
            assert torch.equal(alone[:, 0], states[:, b])
