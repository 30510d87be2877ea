"""Masks that fade: what their rows tell goes with the probability that they are designated ones."""

from dataclasses import replace

import pytest
import torch

from multimdm.models import DiT, DiTConfig, expand_masks, fade_masks
from multimdm.process import Schedule

V, M = 11, 4


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def network(rho: float | None = 2.0, conditioning="none") -> DiT:
    torch.manual_seed(0)
    config = DiTConfig(V, M, hidden_dim=16, num_blocks=2, num_heads=2, cond_dim=8, dropout=0.0)
    net = DiT(replace(config, conditioning=conditioning, mask_fade=rho))
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return net.double().eval()


def with_rows(net: DiT, change) -> DiT:
    """The network without fading, and with other rows of masks."""
    other = DiT(replace(net.config, mask_fade=None)).double().eval()
    other.load_state_dict(net.state_dict())
    with torch.no_grad():
        other.vocab_embed.embedding[V:] = change(net.vocab_embed.embedding[V:])
    return other


def states(generator) -> torch.Tensor:
    return torch.randint(0, V + M, (5, 6), generator=generator)


def test_at_one_no_mask_differs_from_another(generator):
    net = network()
    x_t = states(generator)
    others = torch.where(x_t >= V, V + torch.randint(0, M, x_t.shape, generator=generator), x_t)
    assert not torch.equal(x_t, others)
    torch.testing.assert_close(net(x_t, 1.0), net(others, 1.0), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(net(x_t, 0.5), net(others, 0.5))


def test_at_zero_rows_are_as_they_are(generator):
    net, x_t = network(), states(generator)
    torch.testing.assert_close(net(x_t, 0.0), with_rows(net, lambda rows: rows)(x_t), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rho", [0.5, 1.0, 2.0])
def test_between_they_are_worth_beta(generator, rho):
    """For one time, a time for each sequence, and a time for each position."""
    net, x_t = network(rho), states(generator)
    times = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9], dtype=torch.float64)
    for i, t in enumerate(times):
        beta = Schedule(rho)(t).beta
        faded = with_rows(net, lambda rows, beta=beta: rows.mean(0) + beta * (rows - rows.mean(0)))
        expected = faded(x_t)
        torch.testing.assert_close(net(x_t, t), expected, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(net(x_t, times)[i], expected[i], rtol=1e-10, atol=1e-10)
        by_position = times[:, None].expand(5, 6)
        torch.testing.assert_close(net(x_t, by_position)[i], expected[i], rtol=1e-10, atol=1e-10)


def test_copies_of_one_mask_give_what_it_gave(generator):
    old = DiT(DiTConfig(V, 1, hidden_dim=16, num_blocks=2, num_heads=2, cond_dim=8, dropout=0.0)).double().eval()
    new = fade_masks(expand_masks(old, M), 1.0)
    assert new.config.mask_fade == 1.0
    x_t = states(generator)
    before, after = old(x_t.clamp_max(V), 0.4), new(x_t, 0.4)
    torch.testing.assert_close(before, after, rtol=1e-12, atol=1e-12)


def test_clean_tokens_do_not_fade(generator):
    net = network()
    x_0 = torch.randint(0, V, (3, 6), generator=generator)
    torch.testing.assert_close(net(x_0, 1.0), net(x_0, 0.0), rtol=1e-12, atol=1e-12)


def test_time_is_asked_for_and_kept_noise_refused(generator):
    with pytest.raises(ValueError, match="t must be given: its masks fade with it"):
        network()(states(generator))
    with pytest.raises(ValueError, match="t must be given: this network is conditioned on sigma"):
        network(conditioning="sigma")(states(generator))
    with pytest.raises(ValueError, match="mask_fade must be left out beside noise_rows"):
        DiTConfig(V, M, noise_rows=M, mask_fade=1.0)
