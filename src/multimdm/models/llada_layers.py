"""The parts of LLaDA; parameter names are those of the published checkpoints."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from multimdm.models.llada_config import LLaDAConfig
from multimdm.process.places import widened

Angles = tuple[Tensor, Tensor]
"""Cosines and sines [L, head_dim]."""


class RmsNorm(nn.Module):
    """x / rms(x), in float32 or better, then times a weight."""

    def __init__(self, dim: int, eps: float, device: str | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim, device=device))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            wide = widened(x)
            return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)


def rotary_angles(length: int, head_dim: int, theta: float, device: torch.device) -> Angles:
    """The angles of positions 0 .. length-1, in float32: far positions need its digits."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
    angles = torch.outer(torch.arange(length, dtype=torch.float32, device=device), 1.0 / theta**exponents)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Float[Tensor, "B h L e"], angles: Angles) -> Float[Tensor, "B h L e"]:
    """Turn every pair (x_i, x_{i + half}) by the angle of its position, in float32."""
    cos, sin = angles
    wide = widened(x)
    first, second = wide.chunk(2, dim=-1)
    return torch.addcmul(wide * cos, torch.cat([-second, first], dim=-1), sin).to(x.dtype)


class LLaDABlock(nn.Module):
    """Attention to everything, then SwiGLU; each after an RMS norm and added to its input. No biases."""

    def __init__(self, config: LLaDAConfig, device: str | None = None) -> None:
        super().__init__()
        d, self.num_heads, self.num_kv_heads = config.hidden_dim, config.num_heads, config.num_kv_heads
        kv = d // config.num_heads * config.num_kv_heads
        self.attn_norm = RmsNorm(d, config.norm_eps, device)
        self.q_proj = nn.Linear(d, d, bias=False, device=device)
        self.k_proj = nn.Linear(d, kv, bias=False, device=device)
        self.v_proj = nn.Linear(d, kv, bias=False, device=device)
        self.attn_out = nn.Linear(d, d, bias=False, device=device)
        self.ff_norm = RmsNorm(d, config.norm_eps, device)
        self.ff_proj = nn.Linear(d, config.mlp_dim, bias=False, device=device)
        self.up_proj = nn.Linear(d, config.mlp_dim, bias=False, device=device)
        self.ff_out = nn.Linear(config.mlp_dim, d, bias=False, device=device)

    def forward(self, x: Float[Tensor, "B L d"], angles: Angles, mask: Tensor | None) -> Float[Tensor, "B L d"]:
        x = x + self._attend(self.attn_norm(x), angles, mask)
        h = self.ff_norm(x)
        return x + self.ff_out(F.silu(self.ff_proj(h)) * self.up_proj(h))

    def _attend(self, x: Tensor, angles: Angles, mask: Tensor | None) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        k, v = (
            projection(x).unflatten(-1, (self.num_kv_heads, -1)).transpose(1, 2)
            for projection in (self.k_proj, self.v_proj)
        )
        shared = self.num_kv_heads != self.num_heads
        out = F.scaled_dot_product_attention(rotate(q, angles), rotate(k, angles), v, attn_mask=mask, enable_gqa=shared)
        return self.attn_out(out.transpose(1, 2).flatten(2))
