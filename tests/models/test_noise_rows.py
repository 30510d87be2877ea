"""Rows for noise that is shown beside the state, and masks that are told apart: what they change and what not."""

import json
from dataclasses import replace

import pytest
import torch

from multimdm import load
from multimdm.models import DiT, DiTConfig, expand_masks, show_noise, tell_masks_apart
from multimdm.pipeline import Model
from multimdm.process import MultiMask
from multimdm.process.anchored import shown_with_end
from support.tiny_models import tiny_dit

V, M, L = 7, 3, 5
PROCESS = MultiMask(V, M).tied(noise_shown=True)


def states() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, V + M, (4, L), generator=generator), PROCESS.prior((4, L), generator)


def test_at_first_the_noise_changes_nothing_and_then_it_can():
    old = tiny_dit(V, M, L)
    new = show_noise(old)
    x_t, end = states()
    torch.testing.assert_close(new(shown_with_end(PROCESS, x_t, end), 0.5), old(x_t, 0.5))
    new(shown_with_end(PROCESS, x_t, end), 0.5).square().sum().backward()
    gradient = new.vocab_embed.embedding.grad
    assert gradient is not None
    used = torch.bincount(end.flatten() - V, minlength=M) > 0
    assert torch.equal(gradient[V + M :].abs().sum(1) > 0, used)
    with torch.no_grad():
        new.vocab_embed.embedding[V + M :] = torch.randn(M, 32, generator=torch.Generator().manual_seed(1))
    assert not torch.allclose(new(shown_with_end(PROCESS, x_t, end), 0.5), old(x_t, 0.5))
    assert show_noise(new).config == new.config


def test_rows_for_noise_have_no_length_to_keep():
    """A row of zeros has no direction: scaled to one length, it would leap at the first step."""
    config = replace(tiny_dit(V, M, L).config, embedding_norm=2.0)
    torch.manual_seed(0)
    old = DiT(config)
    torch.nn.init.normal_(old.output_layer.linear.weight)
    new, (x_t, end) = show_noise(old), states()
    torch.testing.assert_close(new(shown_with_end(PROCESS, x_t, end), 0.5), old(x_t, 0.5))
    assert torch.equal(new.vocab_embed.rows[V + M :], torch.zeros(M, 32))
    torch.testing.assert_close(new.vocab_embed.rows[: V + M].norm(dim=1), torch.full((V + M,), 2.0))
    new(shown_with_end(PROCESS, x_t, end), 0.5).square().mean().backward()
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
