"""What new masks begin as: copies with noise, or with what their tokens are like."""

import pytest
import torch

from multimdm.models import expand_masks, resemble_tokens
from multimdm.models.expand import noise_offsets, token_offsets
from multimdm.process import clustered, modulo, random_balanced
from support.tiny_models import tiny_dit

V, M, D = 12, 3, 8
TOKENS = torch.randn(V, D, generator=torch.Generator().manual_seed(0))
COPIES = torch.randn(D, generator=torch.Generator().manual_seed(1)).expand(M, D)


def size(rows: torch.Tensor) -> float:
    return float(rows.square().mean().sqrt())


@pytest.mark.parametrize("assignment", [modulo(V, M), random_balanced(V, M, seed=2)])
def test_a_mask_moves_towards_the_mean_of_its_tokens(assignment):
    found = token_offsets(COPIES, TOKENS, assignment, 0.3)
    assert size(found) == pytest.approx(0.3 * size(COPIES), rel=1e-5)
    wanted = torch.stack([TOKENS[assignment == mask].mean(0) for mask in range(M)]) - TOKENS.mean(0)
    torch.testing.assert_close(found / size(found), wanted / size(wanted))
    torch.testing.assert_close(token_offsets(COPIES, TOKENS, assignment, 0.6), 2 * found)


def test_masks_of_similar_tokens_move_further_than_masks_of_any():
    similar = torch.cat([TOKENS[:1] + 0.01 * TOKENS[1:5], TOKENS[4:]])
    assignment = torch.tensor([0] * 4 + [1, 2] * 4)
    found = token_offsets(COPIES, similar, assignment, 0.1)
    assert size(found[0]) > 1.5 * max(size(found[1]), size(found[2]))
    by_cluster = token_offsets(COPIES, TOKENS, clustered(TOKENS, M, 0), 0.1)
    assert size(by_cluster) == pytest.approx(0.1 * size(COPIES), rel=1e-5)


def test_one_mask_stays_where_it_is():
    assert torch.equal(token_offsets(COPIES[:1], TOKENS, modulo(V, 1), 0.5), torch.zeros(1, D))


def test_noise_is_as_large_and_a_function_of_the_seed():
    wide = COPIES[:, :1].expand(M, 4000)
    one, again, other = (noise_offsets(wide, 0.3, seed) for seed in (5, 5, 6))
    assert size(one) == pytest.approx(0.3 * size(wide), rel=0.05)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_a_network_keeps_all_other_rows():
    old = expand_masks(tiny_dit(V, 1, 6), M)
    new = resemble_tokens(old, modulo(V, M), 0.2)
    before, after = (network.vocab_embed.embedding.detach() for network in (old, new))
    assert torch.equal(before[:V], after[:V])
    offsets = token_offsets(before[V:], before[:V], modulo(V, M), 0.2)
    assert torch.equal(after[V:], before[V:] + offsets)
    assert len(after[V:].unique(dim=0)) == M
