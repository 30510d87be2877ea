"""CANDI's sampler: the update of embeddings done by itself, K calls, temperature, given tokens, traces."""

import copy
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from multimdm.models import DiT, DiTConfig
from multimdm.process import Hybrid, Schedule, Streams
from multimdm.process.draws import uniform
from multimdm.samplers import Choice, generate_candi, time_grid
from support.statistics import REJECT, p_of_draws

V, B, L, D = 11, 3, 5, 6


class Says:
    """A network that gives fixed logits and counts its calls."""

    def __init__(self, logits: Tensor) -> None:
        self.logits, self.times, self.asked = logits, [], []

    def __call__(self, shown: Any, t: Any, positions: Tensor, valid: Any, reduce: Any) -> Any:
        self.times.append(t)
        self.asked.append(positions.clone())
        n = int(positions.sum())
        return reduce(self.logits.expand(n, -1), slice(0, n))


def network() -> DiT:
    torch.manual_seed(0)
    config = DiTConfig(V, 1, hidden_dim=D, num_blocks=1, num_heads=1, cond_dim=8, dropout=0.0, embedding_norm=1.0)
    net = DiT(config).double().eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return net


def nothing(num: int = B, length: int = L) -> Tensor:
    return torch.zeros(num, length, dtype=torch.long)


@pytest.mark.parametrize("noise_dim", [V, D])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_samples_are_those_of_embeddings_that_are_updated(noise_dim, temperature):
    """The published loop: a cache of embeddings, one update per step, tokens revealed with probability (t - s) / t."""
    net, process = network(), Hybrid(V, noise_dim=noise_dim)
    grid, streams = time_grid("uniform", 4), Streams.spawn(7, B)
    rows = F.normalize(net.vocab_embed.embedding.detach(), dim=-1)
    mask, tokens = rows[V], rows[:V]
    start = process.prior((B, L), mine := copy.deepcopy(streams))
    root = tokens if noise_dim == V else torch.linalg.cholesky(tokens.T @ tokens).T
    cache = float(process.sigma(torch.tensor(1.0).double())) * (start.latent.noise.double() @ root)
    x, clean = nothing(), torch.zeros(B, L, dtype=torch.bool)
    with torch.no_grad():
        for t, s in pairwise(grid):
            sigma_t, sigma_s = (float(process.sigma(torch.tensor(time).double())) for time in (t, s))
            soft = 0.5 * mask + 0.5 * cache / (1 + sigma_s**2) ** 0.5
            inputs = torch.where(clean[..., None], tokens[x], soft)
            shadow = copy.copy(net)
            shadow.__dict__["_embed"] = lambda x_t, t, inputs=inputs: inputs
            probs = (shadow(x, t) / temperature).softmax(-1)
            drawn = (uniform((B, L), mine)[..., None] > probs.cumsum(-1)).sum(-1).clamp_max(V - 1)
            cache = cache - (sigma_t - sigma_s) * (cache - tokens[drawn]) / sigma_s**2
            x = torch.where(clean, x, drawn)
            clean = clean | (uniform((B, L), mine) >= s / t)
    made = generate_candi(net, process, grid, nothing(), choice=Choice(temperature), generator=streams)
    assert torch.equal(made.ids, x)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(kind="cosine")], ids=["linear", "cosine"])
@pytest.mark.parametrize("steps", [1, 2, 5, 16])
def test_k_steps_are_k_calls_and_nothing_stays_hidden(steps, schedule):
    says, process = Says(torch.zeros(V)), Hybrid(V, schedule, noise_dim=D)
    grid = time_grid("uniform", steps)
    made = generate_candi(says, process, grid, nothing(4, 200), generator=Streams.spawn(0, 4))
    assert says.times == list(grid[:-1])
    assert made.nfe == steps
    assert int(made.ids.max()) < V
    assert bool(says.asked[0].all())
    for before, after in pairwise(says.asked):
        assert not bool((after & ~before).any())  # what was revealed stays so


def test_finished_sequences_need_no_call():
    says = Says(torch.zeros(V))
    made = generate_candi(says, Hybrid(V), time_grid("uniform", 64), nothing(1, 1), generator=Streams.spawn(0, 1))
    assert made.nfe == len(says.times) < 64


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_temperature_divides_the_logits(temperature):
    logits = torch.linspace(-2, 2, V, dtype=torch.float64)
    made = generate_candi(
        Says(logits),
        Hybrid(V, noise_dim=D),
        time_grid("uniform", 3),
        nothing(200, 50),
        choice=Choice(temperature),
        generator=Streams.spawn(1, 200),
    )
    assert p_of_draws(made.ids, (logits / temperature).softmax(-1)) > REJECT


def test_certain_choices_and_tokens_that_are_never_chosen():
    logits, grid = torch.linspace(-2, 2, V), time_grid("uniform", 3)
    for choice in (Choice(0.0), Choice(greedy=True)):
        made = generate_candi(Says(logits), Hybrid(V), grid, nothing(), choice=choice)
        assert bool((made.ids == V - 1).all())
    assert bool(
        (
            generate_candi(Says(logits), Hybrid(V), grid, nothing(), choice=Choice(0.0, never=(V - 1,))).ids == V - 2
        ).all()
    )
    one = generate_candi(Says(logits), Hybrid(V), (1.0, 0.0), nothing(50), greedy_last=True)
    assert bool((one.ids == V - 1).all())


def test_given_tokens_and_padding_stay():
    says, given = Says(torch.zeros(V)), torch.randint(0, V, (B, L))
    fixed, valid = torch.zeros(B, L, dtype=torch.bool), torch.ones(B, L, dtype=torch.bool)
    fixed[:, :2], valid[:, -1] = True, False
    made = generate_candi(says, Hybrid(V), time_grid("uniform", 2), given, fixed, valid)
    kept = fixed | ~valid
    assert torch.equal(made.ids[kept], given[kept])
    assert not bool((says.asked[0] & kept).any())


def test_a_sequence_does_not_depend_on_its_neighbours():
    net, process, grid = network(), Hybrid(V, noise_dim=D), time_grid("uniform", 4)
    whole = generate_candi(net, process, grid, nothing(6), generator=Streams.spawn(2, 6)).ids
    part = generate_candi(net, process, grid, nothing(2), generator=Streams.spawn(2, 2, first=3)).ids
    assert torch.equal(whole[3:5], part)


def test_the_trace_begins_hidden_and_ends_with_the_result():
    seen: list[tuple[int, int]] = []
    made = generate_candi(
        Says(torch.zeros(V)),
        Hybrid(V),
        time_grid("uniform", 3),
        nothing(),
        trace=True,
        watch=lambda done, of, x: seen.append((done, of)),
    )
    assert made.trace is not None
    assert made.trace.states.shape == (4, B, L)
    assert bool((made.trace.states[0] == V).all())
    assert torch.equal(made.trace.states[-1], made.ids)
    assert made.trace.times[:2, 0].tolist() == [1.0, pytest.approx(2 / 3)]
    assert made.trace.times[-1].tolist() == [0.0] * B
    assert seen == [(1, 3), (2, 3), (3, 3)]
