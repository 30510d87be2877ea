"""Gaussian noise on all embeddings: d numbers per position have the law of V."""

import math
from contextlib import nullcontext

import pytest
import torch
from scipy import stats

from multimdm.models import DiT, DiTConfig
from multimdm.models.layers import noise_image, standing_weights
from multimdm.process import Hybrid, Mixture, NoisyMixture
from support.roots import Roots

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


def plain_image(noise: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The Gram matrix and its root, left to automatic differentiation."""
    return noise @ torch.linalg.cholesky(rows.T @ rows).mT


def test_value_and_gradient_are_those_of_the_root_of_the_gram_matrix():
    noise = torch.randn(3, 5, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    results = []
    for image in (plain_image, noise_image):
        rows = table().requires_grad_()
        value = torch.tanh(0.3 * image(noise, rows) + 0.5).pow(2).sum()
        results.append((value, *torch.autograd.grad(value, rows)))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-14)


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


# -------------------------------------------------------------- while weights stand still


def small_parts(net: DiT, process: Hybrid, kept: bool) -> tuple[int, torch.Tensor]:
    """How many roots three parts of a batch take, forward and backward, and the sum of their gradients."""
    net.zero_grad()
    with Roots() as roots, standing_weights() if kept else nullcontext():
        for seed in range(3):
            generator = torch.Generator().manual_seed(seed)
            state = process.corrupt(torch.randint(0, V, (2, 5), generator=generator), 0.6, generator)
            net(process.shown(state, 0.6), 0.6).pow(2).sum().backward()
    assert net.vocab_embed.embedding.grad is not None
    return roots.made, net.vocab_embed.embedding.grad.clone()


def test_parts_of_a_step_share_a_root_and_change_nothing():
    net, process = network(), Hybrid(V, noise_dim=8)
    each, apart = small_parts(net, process, kept=False)
    once, shared = small_parts(net, process, kept=True)
    assert (each, once) == (3, 1)
    assert torch.equal(apart, shared)


def test_changed_weights_have_a_root_of_their_own():
    net, process = network(), Hybrid(V, noise_dim=8)
    shown = process.shown(process.corrupt(torch.randint(0, V, (2, 5)), 0.6), 0.6)
    with standing_weights():
        before = net(shown, 0.6)
    with torch.no_grad():
        net.vocab_embed.embedding.copy_(torch.randn(V + 1, 8))
    fresh = net(shown, 0.6)
    with standing_weights():
        after = net(shown, 0.6)
    assert torch.equal(after, fresh)
    assert not torch.equal(after, before)


def test_two_networks_do_not_share_a_root():
    nets = network(), network(2.5)
    shown = Hybrid(V, noise_dim=8).prior((1, 5)).latent
    x = NoisyMixture(torch.zeros(1, 5, 1), torch.zeros(1, 5, 1, dtype=torch.long), shown.noise, torch.ones(1, 5))
    with standing_weights():
        kept = [net.vocab_embed.mix_noisy(x, V) for net in nets]
    torch.testing.assert_close(kept[1], 2.5 * kept[0])
