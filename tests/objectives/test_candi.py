"""CANDI's loss equals its plain computation with full vectors and full tables, in value and in gradient."""

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from multimdm.models import DiT, DiTConfig
from multimdm.objectives import Batch, Candi
from multimdm.process import Hybrid, Schedule, Streams

V, B, L = 23, 6, 7


def network(norm: float = 1.0) -> DiT:
    torch.manual_seed(0)
    config = DiTConfig(V, 1, hidden_dim=16, num_blocks=1, num_heads=2, cond_dim=8, dropout=0.0, embedding_norm=norm)
    net = DiT(config)
    for parameter in net.parameters():  # a fresh network predicts the same everywhere
        torch.nn.init.normal_(parameter, std=0.3)
    return net.double()


def batch(padded: bool = False) -> Batch:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, V, (B, L), generator=generator)
    valid = torch.arange(L) < torch.tensor([7, 5, 7, 1, 3, 6])[:, None] if padded else None
    return Batch(ids, valid, torch.linspace(0.15, 0.95, B, dtype=torch.float64), Streams.spawn(3, B))


def plain_loss(net: DiT, process: Hybrid, given: Batch) -> Tensor:
    """One-hots of V numbers with noise, times the normalised table; then the network from its blocks on."""
    state = process.corrupt(given.ids, given.times, copy.deepcopy(given.generator))
    hidden, sigma = process.hidden(state), process.sigma(given.times)[:, None, None]
    w = F.one_hot(given.ids, V) + sigma * state.latent.noise.double()
    rows = F.normalize(net.vocab_embed.embedding, dim=-1)
    soft = 0.5 * rows[V] + 0.5 * (w @ rows[:V]) / torch.sqrt(1 + sigma**2)
    inputs = torch.where(hidden[..., None], soft, rows[given.ids])
    with_inputs = copy.copy(net)
    with_inputs.__dict__["_embed"] = lambda *_: inputs
    log_probs = with_inputs(given.ids, given.times, None, given.valid).log_softmax(-1)
    v = process.schedule(given.times)
    per_token = log_probs.gather(-1, given.ids[..., None])[..., 0] * (v.d_alpha / v.one_minus_alpha)[:, None] * hidden
    return (per_token if given.valid is None else per_token * given.valid).sum()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("schedule", [Schedule(), Schedule(kind="cosine")], ids=["linear", "cosine"])
def test_the_loss_is_that_of_full_tables(schedule, padded, monkeypatch):
    monkeypatch.setattr("multimdm.models.head._CHUNK_ENTRIES", 4 * V)  # several chunks, the last one shorter
    net, process, given = network(), Hybrid(V, schedule), batch(padded)
    plain = plain_loss(net, process, given)
    result = Candi(process)(net, given)
    torch.testing.assert_close(result.loss, plain, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(result.terms["reconstruction"], plain.detach(), rtol=1e-9, atol=1e-10)
    ours = torch.autograd.grad(result.loss, list(net.parameters()))
    theirs = torch.autograd.grad(plain, list(net.parameters()))
    for (name, _), one, other in zip(net.named_parameters(), ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


def test_few_numbers_of_noise_have_the_same_mean_loss():
    """The loss with 16 Gaussians per position (the width) and with 23 (one per token), over many draws."""
    net, means, errors = network(), [], []
    ids = torch.randint(0, V, (64, L), generator=torch.Generator().manual_seed(1))
    times = torch.full((64,), 0.9, dtype=torch.float64)
    for noise_dim in (16, V):
        objective, losses = Candi(Hybrid(V, noise_dim=noise_dim)), []
        with torch.no_grad():
            for seed in range(30):
                losses.append(objective(net, Batch(ids, None, times, Streams.spawn(seed, 64))).loss / ids.numel())
        stacked = torch.stack(losses)
        means.append(float(stacked.mean()))
        errors.append(float(stacked.std()) / 30**0.5)
    assert abs(means[0] - means[1]) < 4 * (errors[0] ** 2 + errors[1] ** 2) ** 0.5


def test_nothing_hidden_is_no_loss():
    given = batch()
    barely = Batch(given.ids, None, torch.full((B,), 1e-12, dtype=torch.float64), given.generator)
    assert float(Candi(Hybrid(V))(network(), barely).loss.detach()) == 0
