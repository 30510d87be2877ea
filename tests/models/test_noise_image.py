"""Gaussian noise on all embeddings: d numbers per position have the law of V."""

import math

import pytest
import torch
from scipy import stats

from multimdm.models import DiT, DiTConfig
from multimdm.models.layers import noise_image
from multimdm.process import Hybrid, Mixture, NoisyMixture

V, D = 40, 6


def table(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(V, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def test_all_numbers_are_used_as_they_are():
    eps = torch.randn(2, 3, V, dtype=torch.float64)
    torch.testing.assert_close(noise_image(eps, table()), torch.einsum("blv,vd->bld", eps, table()))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-6)])
def test_few_numbers_have_the_covariance_of_all(dtype, tolerance):
    """The image is linear in the noise, so that its covariance is exact: that of unit vectors."""
    rows = table(dtype)
    root = noise_image(torch.eye(D, dtype=dtype)[None], rows)[0]
    torch.testing.assert_close(root.T @ root, rows.T @ rows, rtol=tolerance, atol=tolerance * V)


def test_rows_that_do_not_fill_the_space_have_a_root():
    rows = table(torch.float32)
    rows[:, 3:] = rows[:, :3]
    root = noise_image(torch.eye(D)[None], rows)[0]
    torch.testing.assert_close(root.T @ root, rows.T @ rows, rtol=1e-4, atol=1e-4)


def test_the_gradient_has_the_mean_of_the_dense_one():
    """Of a function of the image that is not linear; the mean over noise, from many draws of either kind."""
    means, errors = [], []
    for n in (V, D):
        draws = []
        for seed in range(300):
            rows = table().requires_grad_()
            noise = torch.randn(20, 10, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            torch.tanh(0.3 * noise_image(noise, rows) + 0.5).pow(2).mean().backward()
            draws.append(rows.grad)
        stacked = torch.stack(draws)
        means.append(stacked.mean(0))
        errors.append(stacked.std(0) / math.sqrt(len(stacked)))
    z = (means[0] - means[1]) / torch.sqrt(errors[0] ** 2 + errors[1] ** 2)
    assert stats.chi2.sf(float((z**2).sum()), z.numel()) > 1e-4
    assert float(means[0].abs().max()) > 20 * float(errors[0].max())  # there is something to compare


def test_other_sizes_are_refused():
    with pytest.raises(ValueError, match=r"noise must have 40 numbers per position .* or 6 \(the width\); got 7"):
        noise_image(torch.zeros(1, 1, 7), table())


# -------------------------------------------------------------------------- in the network


def network(norm: float | None = 1.0) -> DiT:
    torch.manual_seed(0)
    config = DiTConfig(V, 1, hidden_dim=8, num_blocks=1, num_heads=2, cond_dim=8, dropout=0.0, embedding_norm=norm)
    net = DiT(config).double()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return net


@pytest.mark.parametrize("norm", [1.0, 2.5])
def test_rows_are_scaled_to_one_length(norm):
    embed = network(norm).vocab_embed
    plain = embed.embedding / embed.embedding.norm(dim=-1, keepdim=True) * norm
    torch.testing.assert_close(embed.rows, plain)
    ids = torch.tensor([[3, 40]])
    torch.testing.assert_close(embed(ids), plain[ids])
    torch.testing.assert_close(embed.mix(torch.ones(1, 2, 1), ids[..., None]), plain[ids])


def test_without_noise_it_is_a_mixture():
    net, process = network(), Hybrid(V, noise_dim=8)
    shown = process.shown(process.corrupt(torch.randint(0, V, (2, 5)), 0.6), 0.6)
    quiet = shown._replace(scale=torch.zeros_like(shown.scale))
    torch.testing.assert_close(net(quiet, 0.6), net(Mixture(shown.weights, shown.ids), 0.6))


@pytest.mark.parametrize("noise_dim", [V, 8])
def test_under_autocast_the_input_stays_wide(noise_dim):
    net, process = network().float(), Hybrid(V, noise_dim=noise_dim)
    shown = process.shown(process.corrupt(torch.randint(0, V, (2, 5)), 0.6), 0.6)
    plain = net.vocab_embed.mix_noisy(shown, V)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(net.vocab_embed.mix_noisy(shown, V), plain)
        net(shown, 0.6).sum().backward()
    assert net.vocab_embed.embedding.grad is not None


def test_noise_is_added_to_the_embedding():
    net = network()
    noise, scale = torch.randn(1, 3, V, dtype=torch.float64), torch.tensor([[0.0, 0.5, 2.0]], dtype=torch.float64)
    ids = torch.tensor([[[1], [2], [40]]])
    embedded = net.vocab_embed.mix_noisy(NoisyMixture(torch.ones(1, 3, 1), ids, noise, scale), V)
    plain = net.vocab_embed.rows[ids[..., 0]] + scale[..., None] * (noise @ net.vocab_embed.rows[:V])
    torch.testing.assert_close(embedded, plain)
