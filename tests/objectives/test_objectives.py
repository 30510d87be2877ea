"""Every objective equals its plain computation over full tables, in value and in gradient."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from multimdm.models import DiT, DiTConfig
from multimdm.objectives import Batch, Elbo, NextToken, Objective, Ramp, Relaxation, RelaxedElbo, Sums
from multimdm.process import Mixture, MultiMask, Schedule, Streams, Uniform
from multimdm.process.relaxation import relaxed_state, relaxed_times

V, B, L = 23, 6, 7
TOLERANCE: dict[torch.dtype, Any] = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-5},
    torch.float64: {"rtol": 1e-9, "atol": 1e-10},
}


def network(num_masks: int, dtype: torch.dtype, causal: bool = False) -> DiT:
    torch.manual_seed(0)
    net = DiT(DiTConfig(V, num_masks, hidden_dim=16, num_blocks=1, num_heads=2, cond_dim=8, dropout=0.0, causal=causal))
    for parameter in net.parameters():  # a fresh network predicts the same everywhere
        torch.nn.init.normal_(parameter, std=0.3)
    return net.to(dtype)


def batch(padded: bool = False, progress: float = 0.5) -> Batch:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, V, (B, L), generator=generator)
    valid = torch.arange(L) < torch.tensor([7, 5, 7, 1, 3, 6])[:, None] if padded else None
    times = torch.linspace(0.15, 0.95, B, dtype=torch.float64)
    return Batch(ids, valid, times, Streams.spawn(3, B), round(100 * progress), 100)


def noised(process, given: Batch) -> Tensor:
    return process.corrupt(given.ids, given.times, copy.deepcopy(given.generator))


def plain_elbo(
    net: DiT, process, given: Batch, shown, x_t: Tensor, t: Tensor, weight: float, density: Any = 1.0
) -> Tensor:
    """Full logits, full log-softmax, the loss at every position, then a mask: what the peers do."""
    log_probs = net(shown, t, None, given.valid).log_softmax(-1)
    terms = process.loss(log_probs, given.ids, x_t, t)
    per_token = (terms.reconstruction + weight * terms.identification) * torch.as_tensor(density)[..., None]
    return (per_token if given.valid is None else per_token * given.valid).sum()


def assert_equal(net: DiT, result: Sums, plain: Tensor) -> None:
    tolerance = TOLERANCE[next(net.parameters()).dtype]
    torch.testing.assert_close(result.loss.detach(), plain.detach().to(result.loss.dtype), **tolerance)
    ours = torch.autograd.grad(result.loss, list(net.parameters()), allow_unused=True)
    theirs = torch.autograd.grad(plain, list(net.parameters()), allow_unused=True)
    for (name, _), one, other in zip(net.named_parameters(), ours, theirs, strict=True):
        assert one is not None, name
        assert other is not None, name
        scale = float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=tolerance["rtol"], atol=tolerance["atol"] * max(1.0, scale))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    "process",
    [MultiMask(V, 5), MultiMask(V, 4, Schedule(0.5, "cosine")), MultiMask(V, 1), Uniform(V)],
    ids=["multimask", "cosine", "mdlm", "uniform"],
)
def test_the_elbo_is_that_of_full_tables(process, padded, dtype, monkeypatch):
    monkeypatch.setattr("multimdm.models.head._CHUNK_ENTRIES", 4 * V)  # several chunks, the last one shorter
    net, given = network(process.num_masks, dtype), batch(padded)
    x_t = noised(process, given)
    result = Elbo(process, Ramp(start=0.0, end=1.0))(net, given)
    assert_equal(net, result, plain_elbo(net, process, given, x_t, x_t, given.times, weight=0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_mask_is_an_independently_written_mdlm(dtype):
    """sum over masked tokens of -log softmax(logits)[x_0] / t, for alpha = 1 - t."""
    process, given = MultiMask(V, 1), batch()
    net = network(1, dtype)
    noisy = noised(process, given)
    logits = net(noisy, given.times)
    picked = F.cross_entropy(logits.flatten(0, 1), given.ids.flatten(), reduction="none").view(B, L)
    plain = (picked * (noisy == V) / given.times[:, None]).sum()
    result = Elbo(process)(net, given)
    assert_equal(net, result, plain)
    assert float(result.terms["identification"]) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("padded", [False, True])
def test_the_relaxed_elbo_is_that_of_full_tables(padded, dtype, monkeypatch):
    monkeypatch.setattr("multimdm.models.head._CHUNK_ENTRIES", 4 * V)
    process, settings = Uniform(V), Relaxation(share=0.6, tau=0.1, gamma_min=-3.0, gamma_max=-1.0)
    net, given = network(0, dtype), batch(padded)
    at = relaxed_times(given.times, -3.0, -1.0, V)
    state = relaxed_state(
        given.ids, at.signal, at.noise, V, 0.1, copy.deepcopy(given.generator), top=settings.entries(V)
    )
    one_hot = F.one_hot(state.mixture.ids, V).to(dtype)
    soft = (one_hot * state.mixture.weights.to(dtype)[..., None]).sum(2)  # the dense [B, L, V] input
    shown = Mixture(soft, torch.arange(V))
    plain = plain_elbo(net, process, given, shown, state.x_t, at.one_minus_alpha, 1.0, at.speed)
    assert_equal(net, RelaxedElbo(process, settings)(net, given), plain)


def test_after_its_share_the_relaxation_is_the_plain_elbo():
    process, net = Uniform(V), network(0, torch.float64)
    relaxed = RelaxedElbo(process, Relaxation(share=0.6))
    late = batch(progress=0.6)
    expected = Elbo(process)(net, replace(late, generator=copy.deepcopy(late.generator)))
    assert torch.equal(relaxed(net, late).loss, expected.loss)
    early = batch(progress=0.59)
    assert not torch.equal(relaxed(net, early).loss, expected.loss)


def test_the_range_of_gamma_fits_the_vocabulary():
    """For GPT-2's vocabulary the computed range is about DUO's published one; alpha runs from 0.95 to 0.05 for all."""
    low, high = Relaxation().gammas(50_257)
    assert (low, high) == pytest.approx((-3.55, -1.85), abs=0.05)
    for vocab_size in (5, 404, 30_522):
        ends = relaxed_times(
            torch.tensor([0.0, 1.0], dtype=torch.float64), *Relaxation().gammas(vocab_size), vocab_size
        )
        assert ends.alpha.tolist() == pytest.approx([0.95, 0.05], abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("padded", [False, True])
def test_the_next_token_loss_is_the_chain_rule(padded, dtype):
    """-log p(x) by running the network on every prefix separately: no position sees itself or what follows."""
    net, given = network(1, dtype, causal=True), batch(padded)
    lengths = torch.full((B,), L) if given.valid is None else given.valid.sum(1)
    plain = torch.zeros((), dtype=dtype)
    for ids, length in zip(given.ids, lengths.tolist(), strict=True):
        for end in range(length):
            prefix = torch.cat([torch.tensor([V]), ids[:end]])[None]
            plain = plain - net(prefix, torch.tensor(0.0))[0, -1].log_softmax(-1)[ids[end]]
    net.config = replace(net.config, conditioning="none")
    result = NextToken(V)(net, given)
    torch.testing.assert_close(result.loss.detach(), plain.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("objective", "num_masks"),
    [(Elbo(MultiMask(V, 5)), 5), (Elbo(Uniform(V)), 0), (RelaxedElbo(Uniform(V), Relaxation(share=1.0)), 0)],
)
def test_a_sequence_does_not_depend_on_its_neighbours(objective: Objective, num_masks):
    """The noise of a sequence comes from its own stream: a batch is the sum of its parts."""
    net, given = network(num_masks, torch.float64), batch()
    whole = objective(net, given)
    parts = torch.zeros((), dtype=torch.float64)
    for i in range(B):
        stream = Streams([int(given.generator.seeds[i])])
        part = Batch(given.ids[i : i + 1], None, given.times[i : i + 1], stream, given.step, given.steps)
        parts = parts + objective(net, part).loss.detach()
    torch.testing.assert_close(whole.loss.detach(), parts, rtol=1e-10, atol=1e-10)


def test_the_terms_are_not_weighted_by_the_curriculum():
    process, net = MultiMask(V, 5), network(5, torch.float64)
    first = Elbo(process, Ramp(start=0.5, end=1.0))(net, batch(progress=0.1))
    full = Elbo(process)(net, batch())
    torch.testing.assert_close(first.loss.detach(), first.terms["reconstruction"])
    torch.testing.assert_close(first.terms["identification"], full.terms["identification"])
    torch.testing.assert_close(full.loss.detach(), full.terms["reconstruction"] + full.terms["identification"])


def test_the_relaxation_needs_the_linear_schedule():
    with pytest.raises(ValueError, match="needs the linear schedule"):
        RelaxedElbo(Uniform(V, Schedule(1.0, "cosine")), Relaxation())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma_min": -3.0}, "give both gamma_min and gamma_max or neither"),
        ({"gamma_min": -1.0, "gamma_max": -2.0}, "gamma_min must be below gamma_max"),
        ({"tau": 0.0}, "greater than 0"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Relaxation(**settings)


@pytest.mark.parametrize("name", ["mdlm", "M=3", "uniform"])
def test_losses_by_time_add_up_and_belong_to_their_times(name):
    from support.distilling import PROCESSES, B, L, batch, network

    process = PROCESSES[name]
    sums = Elbo(process)(network(process), batch(padded=True))
    assert sums.by_time is not None
    losses, tokens = sums.by_time
    torch.testing.assert_close(losses.sum(), torch.stack([*sums.terms.values()]).sum().double(), rtol=1e-9, atol=1e-9)
    # Times are 0.1, 0.26, 0.42, 0.58, 0.74, 0.9; lengths 7, 5, 7, 1, 3, 6.
    assert tokens.tolist() == [0, 7, 5, 0, 7, 1, 0, 3, 0, 6]
    assert not losses[tokens == 0].any()
    assert (B, L) == (6, 7)
