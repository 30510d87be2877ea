"""Rows for noise that is shown beside the state, and masks that are told apart: what they change and what not."""

import json
import math
from dataclasses import replace

import pytest
import torch

from multimdm import load
from multimdm.models import (
    DiT,
    DiTConfig,
    code_masks,
    expand_masks,
    gate_time,
    look_both_ways,
    show_noise,
    tell_masks_apart,
)
from multimdm.models.expand import bucket_codes
from multimdm.pipeline import Model
from multimdm.process import MultiMask
from support.tiny_models import TALES, causal_tales_model, tiny_dit

V, M, L = 7, 3, 5
PROCESS = MultiMask(V, M).tied(noise_shown=True)


def states() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, V + M, (4, L), generator=generator), PROCESS.prior((4, L), generator)


def test_at_first_the_noise_changes_nothing_and_then_it_can():
    old = tiny_dit(V, M, L)
    new = show_noise(old)
    x_t, end = states()
    torch.testing.assert_close(new(PROCESS.path_to(end).shown(x_t), 0.5), old(x_t, 0.5))
    new(PROCESS.path_to(end).shown(x_t), 0.5).square().sum().backward()
    gradient = new.vocab_embed.embedding.grad
    assert gradient is not None
    used = torch.bincount(end.flatten() - V, minlength=M) > 0
    assert torch.equal(gradient[V + M :].abs().sum(1) > 0, used)
    with torch.no_grad():
        new.vocab_embed.embedding[V + M :] = torch.randn(M, 32, generator=torch.Generator().manual_seed(1))
    assert not torch.allclose(new(PROCESS.path_to(end).shown(x_t), 0.5), old(x_t, 0.5))
    assert show_noise(new).config == new.config


def test_rows_for_noise_have_no_length_to_keep():
    """A row of zeros has no direction: scaled to one length, it would leap at the first step."""
    config = replace(tiny_dit(V, M, L).config, embedding_norm=2.0)
    torch.manual_seed(0)
    old = DiT(config)
    torch.nn.init.normal_(old.output_layer.linear.weight)
    new, (x_t, end) = show_noise(old), states()
    torch.testing.assert_close(new(PROCESS.path_to(end).shown(x_t), 0.5), old(x_t, 0.5))
    assert torch.equal(new.vocab_embed.rows[V + M :], torch.zeros(M, 32))
    torch.testing.assert_close(new.vocab_embed.rows[: V + M].norm(dim=1), torch.full((V + M,), 2.0))
    new(PROCESS.path_to(end).shown(x_t), 0.5).square().mean().backward()
    gradient = new.vocab_embed.embedding.grad
    assert gradient is not None
    assert 0 < float(gradient[V + M :].norm()) < 100 * float(gradient[: V + M].norm())


def test_masks_are_told_apart_and_tokens_stay():
    old = expand_masks(tiny_dit(V, 1, L), M)
    new, again, other = (tell_masks_apart(old, 0.2, seed) for seed in (5, 5, 6))
    rows = [network.vocab_embed.embedding.detach() for network in (old, new, again, other)]
    assert torch.equal(rows[0][:V], rows[1][:V])
    assert torch.equal(rows[1], rows[2])
    assert not torch.equal(rows[1], rows[3])
    assert len(rows[1][V:].unique(dim=0)) == M
    size = (rows[1] - rows[0])[V:].std() / rows[0][V:].square().mean().sqrt()
    assert float(size) == pytest.approx(0.2, rel=0.2)
    assert torch.equal(tell_masks_apart(old, 0.0, 5).vocab_embed.embedding, rows[0])


# -------------------------------------------------------------------- codes


def rows_of(network: DiT) -> torch.Tensor:
    return network.vocab_embed.embedding.detach()


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("shown", [True, False])
def test_a_mask_gets_the_same_code_as_state_and_as_noise(shown, scale):
    old = expand_masks(tiny_dit(V, 1, L), 16)
    old = show_noise(old) if shown else old
    before = rows_of(old).clone()
    new = code_masks(old, scale, seed=5)
    added = rows_of(new) - before
    assert torch.equal(rows_of(old), before)  # the given one is left as it is
    assert not bool(added[:V].any())  # tokens
    codes = added[V : V + 16]
    size = before[:V].square().mean().sqrt()
    assert float(codes.square().mean().sqrt() / size) == pytest.approx(scale, rel=1e-5)
    if shown:
        torch.testing.assert_close(added[V + 16 :], codes)
        torch.testing.assert_close(rows_of(new)[V + 16 :], codes)  # which were zero
    assert len(added) == V + 16 * (1 + shown)
    for name, tensor in new.state_dict().items():
        assert name == "vocab_embed.embedding" or torch.equal(tensor, old.state_dict()[name]), name


def test_codes_are_a_function_of_the_seed_and_may_be_left_out():
    old = show_noise(expand_masks(tiny_dit(V, 1, L), 16))
    one, again, other = (rows_of(code_masks(old, 1.0, seed)) for seed in (5, 5, 6))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(rows_of(code_masks(old, 0.0, 5)), rows_of(old))


def test_neighbouring_buckets_have_similar_codes():
    """Of 64 masks the most similar one is near by, for every one; so it is not for masks that are merely told apart."""
    old = expand_masks(tiny_dit(V, 1, L), 64)

    def nearest(rows: torch.Tensor) -> torch.Tensor:
        """How far away, in buckets, the most similar mask is."""
        distance = torch.cdist(rows[V:].double(), rows[V:].double()).fill_diagonal_(torch.inf)
        return (distance.argmin(1) - torch.arange(64)).abs()

    assert int(nearest(rows_of(code_masks(old, 1.0, 5))).max()) <= 4  # four quarters of a turn
    assert float(nearest(rows_of(tell_masks_apart(old, 1.0, 5))).double().mean()) > 5


def test_codes_are_sines_and_cosines_of_the_middle_of_the_bucket():
    for num_masks, waves in ((8, 5), (256, 8), (300, 9)):
        codes = bucket_codes(num_masks)
        assert codes.shape == (num_masks, 2 * waves)
        for k in (0, 3, num_masks - 1):
            angles = [math.pi * 2**j * (k + 0.5) / num_masks for j in range(waves)]
            expected = [*map(math.sin, angles), *map(math.cos, angles)]
            assert codes[k].tolist() == pytest.approx(expected, abs=1e-12)
    # At the last frequency neighbours are a quarter of a turn apart: no two masks are alike.
    assert math.pi * 2**7 / 256 == math.pi / 2
    apart = torch.cdist(bucket_codes(256), bucket_codes(256)).fill_diagonal_(torch.inf)
    assert float(apart.min()) > 1.0


# ------------------------------------------------------- from left to right, and both ways


def test_a_causal_network_is_made_to_look_both_ways():
    old = causal_tales_model().network
    assert isinstance(old, DiT)
    new = look_both_ways(old)
    assert old.config.causal
    assert new.config == replace(old.config, causal=False)
    for name, tensor in new.state_dict().items():
        assert torch.equal(tensor, old.state_dict()[name]), name
    x, last = torch.zeros((1, 6), dtype=torch.long), torch.zeros((1, 6), dtype=torch.long)
    last[0, -1] = 5
    assert torch.equal(old(x, None)[0, :-1], old(last, None)[0, :-1])
    assert not torch.allclose(new(x, None)[0, 0], new(last, None)[0, 0], atol=1e-4)
    torch.testing.assert_close(new(x[:, :1], None), old(x[:, :1], None))  # alone there is one way only
    with torch.no_grad():
        new.vocab_embed.embedding.zero_()
    assert bool(old.vocab_embed.embedding.any())  # weights of its own


def test_the_start_symbol_becomes_the_mask():
    """It can be expanded, shown noise and told the time like any masked network."""
    old = causal_tales_model().network
    assert isinstance(old, DiT)
    start, V = rows_of(old)[-1], TALES.vocab_size
    new = gate_time(show_noise(expand_masks(look_both_ways(old), 4)))
    assert torch.equal(rows_of(new)[V : V + 4], start.expand(4, -1))
    x_t = torch.full((2, 6), V)
    process = MultiMask(V, 4).tied(noise_shown=True)
    shown = process.path_to(x_t + 3).shown(x_t + 3)
    torch.testing.assert_close(new(shown, torch.ones(2)), look_both_ways(old)(x_t, None), rtol=1e-4, atol=1e-5)


def test_what_looks_both_ways_already_is_refused():
    with pytest.raises(ValueError, match="only an autoregressive network can be made to look both ways"):
        look_both_ways(tiny_dit(V, 1, L))


# ------------------------------------------------------------------ on disk


def test_a_model_that_is_shown_its_noise_is_loaded_as_it_was_saved(tmp_path):
    model = Model(show_noise(tiny_dit(V, M, L)), PROCESS)
    model.save(tmp_path / "model")
    found = load(tmp_path / "model")
    assert isinstance(found.process, MultiMask)
    assert (found.process.tied_noise, found.process.noise_shown) == (True, True)
    one, other = (m.sample(num=3, length=L, steps=2, seed=1).ids for m in (model, found))
    assert torch.equal(one, other)
    file = tmp_path / "model" / "config.json"
    written = json.loads(file.read_text())
    written["process"]["noise_shown"] = False
    file.write_text(json.dumps(written))
    with pytest.raises(ValueError, match="the network has 3 rows for noise; its process needs 0"):
        load(tmp_path / "model")


def test_bad_input():
    with pytest.raises(ValueError, match="noise_rows must be 0 or num_masks, 3; got 2"):
        replace(DiTConfig(V, M), noise_rows=2)
    with pytest.raises(ValueError, match="noise_shown must be False unless noise is tied"):
        MultiMask(V, M, noise_shown=True)
