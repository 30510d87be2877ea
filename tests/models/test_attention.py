"""Attention in half precision on a CPU: computed in float32, given back in half precision."""

import pytest
import torch
from torch.nn import functional as F

from multimdm.models.layers import attention


def heads(dtype: torch.dtype) -> list[torch.Tensor]:
    """Queries, keys and values [B, h, L, e]."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn((2, 3, 7, 8), generator=generator).to(dtype).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("causal", [False, True])
def test_wide_precisions_are_torchs_own(causal):
    for dtype in (torch.float32, torch.float64):
        q, k, v = heads(dtype)
        expected = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        assert torch.equal(attention(q, k, v, None, causal), expected)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_is_rounded_once(causal, autocast):
    """The result is that of float32, rounded; a product in bfloat16 would round sums on the way."""
    q, k, v = heads(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = attention(q, k, v, None, causal)
    wide = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, wide.to(torch.bfloat16))


def test_gradients_of_half_precision_are_those_of_float32():
    q, k, v = heads(torch.bfloat16)
    mask = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    mask[0, ..., 4:] = False
    attention(q, k, v, mask, False).float().square().sum().backward()
    wide = [part.detach().float().requires_grad_() for part in (q, k, v)]
    F.scaled_dot_product_attention(*wide, attn_mask=mask).to(torch.bfloat16).float().square().sum().backward()
    for part, expected in zip((q, k, v), wide, strict=True):
        assert part.grad is not None
        assert expected.grad is not None
        torch.testing.assert_close(part.grad, expected.grad.to(torch.bfloat16))
