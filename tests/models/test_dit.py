from typing import Any, cast

import pytest
import torch

from multimdm.models import SIZES, DiT, DiTConfig, Mixture, expand_masks
from multimdm.models.layers import sigma_of_time

SMALL: dict[str, Any] = {
    "vocab_size": 13,
    "hidden_dim": 32,
    "num_blocks": 2,
    "num_heads": 4,
    "cond_dim": 16,
    "max_length": 24,
}


def network(seed: int = 0, dtype: torch.dtype = torch.float64, **options) -> DiT:
    """A network with nothing at zero, so that every part matters."""
    torch.manual_seed(seed)
    net = DiT(DiTConfig(**(SMALL | {"num_masks": 2, "dropout": 0.0} | options))).to(dtype)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return net.eval()


def states(*shape: int, high: int = 15) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("conditioning", ["sigma", "time", "none"])
@pytest.mark.parametrize("causal", [False, True])
def test_requested_positions_are_rows_of_the_full_output(conditioning, causal):
    net, x_t = network(conditioning=conditioning, causal=causal), states(3, 8)
    positions = torch.rand(3, 8, generator=torch.Generator().manual_seed(2)) < 0.5
    for t in (0.4, torch.tensor([0.1, 0.5, 1.0]), torch.rand(3, 8)):
        results = []
        for packed in (net(x_t, t)[positions], net(x_t, t, positions)):
            net.zero_grad()
            (packed * torch.arange(packed.numel()).view_as(packed)).sum().backward()
            results.append((packed.detach(), *(p.grad.clone() for p in net.parameters() if p.grad is not None)))
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("suppressed", [(), (3, 7)])
@pytest.mark.parametrize("padded", [False, True])
def test_the_head_of_the_features_is_the_network(suppressed, padded):
    """The two parts of a call, at all positions or at some; rows of features may be given in any number."""
    net, x_t, t = network(suppressed=suppressed), states(3, 8), torch.tensor([0.1, 0.5, 1.0])
    valid = torch.arange(8) < torch.tensor([8, 3, 5])[:, None] if padded else None
    some = torch.rand(3, 8, generator=torch.Generator().manual_seed(2)) < 0.5
    for positions in (None, some, torch.zeros_like(some)):
        features, whole = net.features(x_t, t, positions, valid), net(x_t, t, positions, valid)
        assert features.shape == (*whole.shape[:-1], SMALL["hidden_dim"])
        torch.testing.assert_close(net.logits(features), whole, rtol=0, atol=0)
    features, whole = net.features(x_t, t, some, valid), net(x_t, t, some, valid)
    torch.testing.assert_close(net.logits(features[2:5]), whole[2:5])
    torch.testing.assert_close(net.logits(features), net(x_t, t, some, valid, lambda logits, rows: logits))
    gradients = [
        torch.autograd.grad(logits.softmax(-1).square().sum(), list(net.parameters()))
        for logits in (net.logits(features), whole)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_padding_is_irrelevant():
    net, x_t = network(dtype=torch.float32), states(3, 10)
    lengths = [10, 4, 7]
    valid = torch.arange(10) < torch.tensor(lengths)[:, None]
    whole = net(x_t, 0.3, valid=valid)
    left = torch.stack([x.roll(10 - n) for x, n in zip(x_t, lengths, strict=True)])
    shifted = net(left, 0.3, valid=valid.flip(1))
    for row, n in enumerate(lengths):
        alone = net(x_t[row : row + 1, :n], 0.3)[0]
        torch.testing.assert_close(whole[row, :n], alone, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(shifted[row, 10 - n :], alone, atol=1e-4, rtol=1e-4)  # rotary is relative


def test_causal_networks_do_not_look_ahead():
    net = network(causal=True, num_masks=0, conditioning="none")
    x = states(1, 9, high=13)
    changed = x.clone()
    changed[0, 5:] = (changed[0, 5:] + 1) % 13
    torch.testing.assert_close(net(x)[:, :5], net(changed)[:, :5])
    assert not torch.allclose(net(x)[:, 5:], net(changed)[:, 5:])
    valid = torch.ones(1, 9, dtype=torch.bool)
    torch.testing.assert_close(net(x, valid=valid), net(x))


def test_one_hot_mixtures_are_ids_and_mixtures_are_linear_in_the_embedding():
    net, x_t = network(), states(2, 6)
    one_hot = torch.nn.functional.one_hot(x_t, 15).double()
    expected = net(x_t, 0.5)
    torch.testing.assert_close(net(Mixture(one_hot, torch.arange(15)), 0.5), expected)
    torch.testing.assert_close(net(Mixture(torch.ones(2, 6, 1).double(), x_t[..., None]), 0.5), expected)
    weights, ids = torch.rand(2, 6, 3).double(), states(2, 6, 3)
    dense = torch.zeros(2, 6, 15).double().scatter_add_(-1, ids, weights)
    torch.testing.assert_close(net(Mixture(weights, ids), 0.5), net(Mixture(dense, torch.arange(15)), 0.5))


def test_mixtures_pass_gradients_to_their_weights():
    net = network()
    weights = torch.rand(1, 4, 2).double().requires_grad_()
    net(Mixture(weights, states(1, 4, 2)), 0.5).sum().backward()
    assert weights.grad is not None
    assert float(weights.grad.abs().min()) > 0


@pytest.mark.parametrize("conditioning", ["sigma", "time", "none"])
def test_conditioning(conditioning):
    net, x_t = network(conditioning=conditioning), states(2, 5)
    at_end = net(x_t, 1.0)
    assert bool(at_end.isfinite().all())
    same = torch.allclose(at_end, net(x_t, 0.2))
    assert same == (conditioning == "none")


def test_sigma_has_the_published_floor():
    sigma = sigma_of_time(torch.tensor([0.0, 0.5, 0.9995, 1.0], dtype=torch.float64))
    expected = torch.tensor([0.0, 0.5, 1e-3, 1e-3], dtype=torch.float64)
    torch.testing.assert_close(torch.exp(-sigma), expected.where(expected > 0, 1.0))


@pytest.mark.parametrize("num_masks", [1, 3, 50])
def test_expanded_masks_all_mean_what_the_one_mask_meant(num_masks):
    net = network(num_masks=1)
    wide = expand_masks(net, num_masks)
    x_t = states(2, 8, high=14)
    for mask in range(num_masks):
        torch.testing.assert_close(wide(torch.where(x_t == 13, 13 + mask, x_t), 0.6), net(x_t, 0.6), rtol=0, atol=0)
    assert net.config.num_masks == 1
    assert wide.config.num_masks == num_masks


def test_suppressed_columns_are_never_predicted():
    net = network(suppressed=(3,))
    probs = net(states(2, 5), 0.5).softmax(-1)
    assert bool((probs[..., 3] == 0).all())
    probs.square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in net.parameters() if p.grad is not None)


def test_parameter_counts_of_the_published_networks():
    """139,292,986 with BERT's vocabulary and 169,627,218 with GPT-2's and its mask; ours lacks the mask's column."""
    with torch.device("meta"):
        bert = DiT(DiTConfig(vocab_size=30_522, num_masks=0, **cast(Any, SIZES["small"])))
        gpt2 = DiT(DiTConfig(vocab_size=50_257, num_masks=1, **cast(Any, SIZES["small"])))
    assert sum(p.numel() for p in bert.parameters()) == 139_292_986
    assert sum(p.numel() for p in gpt2.parameters()) == 169_627_218 - 769


def test_new_networks_start_at_the_uniform_prediction():
    net = DiT(DiTConfig(**SMALL)).eval()
    assert bool((net(states(1, 4, high=14), 0.5) == 0).all())


def test_bfloat16_weights():
    net, x_t = network(dtype=torch.float32), states(2, 6)
    expected = net(x_t, 0.5)
    rounded = net.bfloat16()(x_t, 0.5)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), expected, atol=0.3, rtol=0.1)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: network()(states(1, 25), 0.5), "sequences may be 24 long at most .max_length.; got 25"),
        (lambda: network()(states(2, 5)), "t must be given: this network is conditioned on sigma"),
        (lambda: network()(states(2, 5), torch.rand(3)), r"shape \[B\] or \[B, L\] of \[2, 5\]; got \[3\]"),
        (lambda: DiTConfig(vocab_size=9, hidden_dim=30, num_heads=4), "hidden_dim must be a multiple of num_heads"),
        (lambda: DiTConfig(vocab_size=9, suppressed=(9,)), "suppressed ids must lie in 0..8; got 9"),
        (lambda: expand_masks(network(), 3), "only a network with one mask can be expanded; this one has 2"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
