"""The parts of the diffusion transformer; parameter names are those of the published checkpoints."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from multimdm.models.memory import KeysAndValues
from multimdm.process import NoisyMixture
from multimdm.process.places import exact

SIGMA_FLOOR = 1e-3
"""sigma = -log max(1 - t, 1e-3) is finite at t = 1; published networks never saw a larger one."""

_FREQUENCIES = 256
_MAX_PERIOD = 10_000


def sigma_of_time(t: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """sigma = -log max(1 - t, 1e-3): what networks of this family call time."""
    return -torch.log((1 - t).clamp_min(SIGMA_FLOOR))


class Embedding(nn.Module):
    """A row per state: clean tokens, then masks, then free rows, which have no length to keep: they begin at zero."""

    def __init__(self, num_rows: int, dim: int, norm: float | None = None, num_free: int = 0) -> None:
        super().__init__()
        self.norm, self._num_free = norm, num_free
        self.embedding = nn.Parameter(torch.empty(num_rows, dim))
        nn.init.kaiming_uniform_(self.embedding, a=math.sqrt(5))

    @property
    def rows(self) -> Float[Tensor, "states d"]:
        """The rows as they are used: scaled to one length, if they have one."""
        if self.norm is None:
            return self.embedding
        if not self._num_free:
            return self.norm * F.normalize(self.embedding, dim=-1)
        states, free = self.embedding.tensor_split([-self._num_free])
        return torch.cat([self.norm * F.normalize(states, dim=-1), free])

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.rows)

    def mix(self, weights: Float[Tensor, "B L k"], ids: Tensor) -> Float[Tensor, "B L d"]:
        """sum_k weights_k row(ids_k); `ids` is [k], the same everywhere, or [B, L, k]."""
        return _mixed(self.rows, weights, ids)

    def mix_noisy(self, x: NoisyMixture, vocab_size: int) -> Float[Tensor, "B L d"]:
        """sum_k weights_k row(ids_k) + scale sum_v eps_v row(v), v over the clean tokens."""
        rows = self.rows
        noise = noise_image(x.noise, rows[:vocab_size], owner=self)
        return torch.addcmul(_mixed(rows, x.weights, x.ids), x.scale[..., None].to(noise.dtype), noise)


def _mixed(rows: Float[Tensor, "states d"], weights: Float[Tensor, "B L k"], ids: Tensor) -> Float[Tensor, "B L d"]:
    if ids.ndim == 1:
        return weights.to(rows.dtype) @ rows[ids]
    flat = F.embedding_bag(ids.flatten(0, 1), rows, mode="sum", per_sample_weights=weights.flatten(0, 1).to(rows.dtype))
    return flat.unflatten(0, ids.shape[:2])


class Norm(nn.Module):
    """Layer normalisation with a scale and no shift, in float32 or better."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        working = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            return F.layer_norm(x.to(working), self.weight.shape, self.weight.to(working)).to(x.dtype)


class TimeEmbedding(nn.Module):
    """Sinusoids of the conditioning number (cosines first), then two linear layers.

    With a gate g, which starts at zero, the layers' result h becomes h(0) + g (h(number) - h(0)): a network that was
    trained with the constant h(0) begins as it was, and g = 1 is the ungated embedding.
    """

    def __init__(self, cond_dim: int, gated: bool = False) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(_FREQUENCIES, cond_dim), nn.SiLU(), nn.Linear(cond_dim, cond_dim))
        self.gate = nn.Parameter(torch.zeros(cond_dim)) if gated else None

    def forward(self, number: Float[Tensor, "*s"]) -> Float[Tensor, "*s c"]:
        embedded = self._embed(number)
        if self.gate is not None:
            constant = self._embed(torch.zeros_like(number))
            embedded = torch.addcmul(constant, self.gate, embedded - constant)
        return F.silu(embedded)

    def _embed(self, number: Tensor) -> Tensor:
        half = _FREQUENCIES // 2
        exponents = torch.arange(half, dtype=torch.float32, device=number.device) / half
        angles = number[..., None].to(torch.promote_types(number.dtype, torch.float32)) * torch.exp(
            -math.log(_MAX_PERIOD) * exponents
        )
        waves = torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)
        return self.mlp(waves.to(next(self.mlp.parameters()).dtype))


class Rotary(nn.Module):
    """Rotary position embedding over the whole head, halves rotated against each other."""

    inv_freq: Tensor

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        # On the CPU: for arithmetic on meta, where only sizes are wanted, torch would import its compiler, for seconds.
        inv_freq = 1.0 / _MAX_PERIOD ** (torch.arange(0, head_dim, 2, device="cpu").float() / head_dim)
        self.register_buffer("inv_freq", inv_freq.to(torch.get_default_device()))

    def angles(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines [L, head_dim] of positions 0 .. length-1."""
        position = torch.arange(length, device=self.inv_freq.device, dtype=self.inv_freq.dtype)
        angles = torch.outer(position, self.inv_freq)
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos(), angles.sin()

    @staticmethod
    def rotate(x: Float[Tensor, "B L n h e"], cos: Tensor, sin: Tensor) -> Float[Tensor, "B L n h e"]:
        """Turn every pair (x_i, x_{i + half}) by the angle of its position."""
        cos, sin = (angles.to(x.dtype)[:, None, None] for angles in (cos, sin))
        first, second = x.chunk(2, dim=-1)
        return torch.addcmul(x * cos, torch.cat([-second, first], dim=-1), sin)


class Block(nn.Module):
    """Attention and a four times wider MLP, each shifted, scaled and gated by the time embedding."""

    def __init__(self, dim: int, num_heads: int, cond_dim: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.norm1 = Norm(dim)
        self.attn_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.attn_out = nn.Linear(dim, dim, bias=False)
        self.norm2 = Norm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim))
        self.adaLN_modulation = nn.Linear(cond_dim, 6 * dim)
        nn.init.zeros_(self.adaLN_modulation.weight)
        nn.init.zeros_(self.adaLN_modulation.bias)

    def forward(
        self,
        x: Float[Tensor, "B L d"],
        c: Float[Tensor, "b l c"],
        angles: tuple[Tensor, Tensor],
        mask: Tensor | None,
        causal: bool,
        memory: KeysAndValues | None = None,
    ) -> Float[Tensor, "B L d"]:
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.adaLN_modulation(c).chunk(6, dim=-1)
        attended = self._attend(modulate(self.norm1(x), shift_1, scale_1), angles, mask, causal, memory)
        x = torch.addcmul(x, gate_1, self._drop(attended))
        return torch.addcmul(x, gate_2, self._drop(self.mlp(modulate(self.norm2(x), shift_2, scale_2))))

    def _attend(
        self,
        x: Tensor,
        angles: tuple[Tensor, Tensor],
        mask: Tensor | None,
        causal: bool,
        memory: KeysAndValues | None,
    ) -> Tensor:
        qkv = self.attn_qkv(x).unflatten(-1, (3, self.num_heads, -1))
        turned = Rotary.rotate(qkv[:, :, :2], *angles)  # queries and keys together
        q, k, v = (part.transpose(1, 2) for part in (turned[:, :, 0], turned[:, :, 1], qkv[:, :, 2]))
        if memory is not None:
            k, v = memory.extended(k, v)
        out = attention(q, k, v, mask, causal and mask is None)
        return self.attn_out(out.transpose(1, 2).flatten(2))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """softmax(q k^T / sqrt(e)) v for heads [B, h, L, e].

    On a CPU, torch's kernel takes ten times as long backward in bfloat16 as in float32, so half precision is widened
    for it; all other products of a block stay in half precision, where they are four times as fast.
    """
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        wide = (part.float() for part in (q, k, v))
        with torch.autocast("cpu", enabled=False):
            return F.scaled_dot_product_attention(*wide, attn_mask=mask, is_causal=causal).to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)


class Output(nn.Module):
    """The final norm, modulated by time, and the map to logits over clean tokens; it starts at zero."""

    def __init__(self, dim: int, cond_dim: int, vocab_size: int) -> None:
        super().__init__()
        self.norm_final = Norm(dim)
        self.linear = nn.Linear(dim, vocab_size)
        self.adaLN_modulation = nn.Linear(cond_dim, 2 * dim)
        for layer in (self.linear, self.adaLN_modulation):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def features(self, x: Tensor, c: Tensor, positions: Tensor | None) -> Tensor:
        """What the linear map sees, at the requested positions only: [N, d], or [B, L, d] without them."""
        shift, scale = self.adaLN_modulation(c).chunk(2, dim=-1)
        if positions is not None:
            where = positions.nonzero(as_tuple=True)  # once: on a GPU it waits for the positions
            x, shift, scale = (part.expand(*positions.shape, -1)[where] for part in (x, shift, scale))
        return modulate(self.norm_final(x), shift, scale)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """x (1 + scale) + shift."""
    return torch.addcmul(shift, x, 1 + scale)


# ---------------------------------------------------- Gaussian noise on the embeddings of all tokens, as CANDI shows it
#
# It takes d numbers per position instead of V. The sum of eps_v e(v) over V standard Gaussians eps is a Gaussian with
# the covariance G = E^T E, as is R^T z for d Gaussians z and G = R^T R (Cholesky). The law is the same for every table
# E, and so is the mean of any gradient. A position costs d^2 instead of d V multiplications, and G once as much as d
# positions of d V: n = d pays for batches of more positions than that.
#
# R belongs to the weights, not to a call: while they stand still (`standing_weights`) it is made once. Nothing else
# tells that weights have changed: FSDP gathers new ones into tensors whose version it keeps.
#
# Shapes: noise [B, L, n] with n = V or d; rows [V, d]; R and G [d, d].

_roots: ContextVar[dict[nn.Module, Tensor] | None] = ContextVar("roots", default=None)


@contextmanager
def standing_weights() -> Iterator[None]:
    """No weights change in here: the root of an embedding's noise is made once and kept until the end."""
    token = _roots.set({})
    try:
        yield
    finally:
        _roots.reset(token)


def noise_image(
    noise: Float[Tensor, "B L n"], rows: Float[Tensor, "V d"], owner: nn.Module | None = None
) -> Float[Tensor, "B L d"]:
    """sum_v eps_v rows_v of standard Gaussians eps: from eps itself (n = V), or in law from n = d Gaussians.

    `owner` is the module whose rows these are, under which their root is kept while weights stand still.
    """
    V, d = rows.shape
    if noise.shape[-1] not in (V, d):
        raise ValueError(
            f"noise must have {V} numbers per position (one per token) or {d} (the width); got {noise.shape[-1]}"
        )
    with torch.autocast(rows.device.type, enabled=False):  # bfloat16 would round the sums of thousands of rows
        if noise.shape[-1] == V:
            return noise.to(rows.dtype) @ rows
        return noise.to(rows.dtype) @ _Root.apply(rows, _kept_root(rows.detach(), owner))


def _kept_root(rows: Tensor, owner: nn.Module | None) -> Tensor:
    roots = _roots.get()
    if roots is None or owner is None:
        return _root(rows)
    if owner not in roots:
        roots[owner] = _root(rows)
    return roots[owner]


def _root(rows: Float[Tensor, "V d"]) -> Float[Tensor, "d d"]:
    """R with R^T R = rows^T rows, up to the rounding of the rows' precision; in float64."""
    wide = torch.promote_types(rows.dtype, torch.float32)
    gram = exact(rows.to(wide).T @ rows.to(wide))
    d = len(gram)
    # Of embeddings that do not fill the space G has no root: lift it by what rounding has done to it anyway.
    lift = torch.finfo(wide).eps * d**0.5 * gram.diagonal().mean()
    lifted = gram + lift * torch.eye(d, dtype=gram.dtype, device=gram.device)
    return torch.linalg.cholesky_ex(lifted).L.mT


class _Root(torch.autograd.Function):
    """R as a function of the rows, where R itself is known: its gradient needs neither G nor the graph behind R."""

    @staticmethod
    def forward(ctx, rows, root):  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(rows, root)
        return root.to(rows.dtype).to(rows.device)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        """dE = 2 E sym(R^-1 Phi(R dR^T) R^-T), Phi the lower triangle with half of its diagonal."""
        rows, root = ctx.saved_tensors
        middle = (root @ exact(grad).mT).tril()
        middle.diagonal().mul_(0.5)
        left = torch.linalg.solve_triangular(root, middle, upper=True)
        of_gram = torch.linalg.solve_triangular(root.mT, left, upper=False, left=False)
        both = (of_gram + of_gram.mT).to(rows.dtype).to(rows.device)
        return rows @ both, None
