"""LLaDA: a bidirectional LLaMA that predicts clean tokens, x_t -> logits, at the positions that are asked for."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from multimdm.models.head import Reduce, reduce_logits
from multimdm.models.llada_config import Adapter, LLaDAConfig
from multimdm.models.llada_layers import LLaDABlock, RmsNorm, rotary_angles
from multimdm.process import Mixture, Time
from multimdm.process.places import brought


class LLaDA(nn.Module):
    """The published network, in the ids of the process.

    Clean tokens are 0 .. V-1 and masks V .. V+M-1; a mask's row of the embedding is wherever the configuration says.
    The head has a column for every id of the vocabulary; those of masks are never predicted. The network sees no time:
    it is accepted, as for every network, and left unread.
    """

    mask_rows: Tensor
    column_bias: Tensor

    def __init__(self, config: LLaDAConfig, device: str | None = None) -> None:
        """With `device="meta"` the weights take no memory until they are assigned."""
        super().__init__()
        self.config = config
        self.recompute = False
        """Keep only the blocks' inputs for the backward pass and compute the rest again: less memory, more time."""
        self.adapter: Adapter | None = None
        """The low-rank adapter in its layers, if there is one."""
        d = config.hidden_dim
        # Zeros until `initialise` or a file fills them: random numbers, as nn.Embedding draws, cost seconds on "meta".
        self.wte = nn.Embedding.from_pretrained(torch.zeros(config.num_rows, d, device=device), freeze=False)
        self.blocks = nn.ModuleList(LLaDABlock(config, device) for _ in range(config.num_blocks))
        self.ln_f = RmsNorm(d, config.norm_eps, device)
        self.ff_out = nn.Linear(d, config.vocab_size, bias=False, device=device)
        column_bias = torch.zeros(config.vocab_size)
        column_bias[list(config.suppressed)] = -torch.inf
        self.register_buffer("column_bias", column_bias, persistent=False)
        self.register_buffer("mask_rows", torch.tensor(config.mask_rows), persistent=False)

    def initialise(self) -> "LLaDA":
        """Random weights of deviation 1 / sqrt(d); what is added to the residual stream is scaled down with the depth.

        That is near the usual 0.02 at LLaDA's width, and enough for narrow networks to learn from.
        """
        std = 1 / math.sqrt(self.config.hidden_dim)
        for name, weights in self.named_parameters():
            if weights.ndim == 2:
                deep = name.endswith(("attn_out.weight", "ff_out.weight")) and name.startswith("blocks")
                nn.init.normal_(weights, std=std / math.sqrt(2 * self.config.num_blocks) if deep else std)
        return self

    def forward(
        self,
        x_t: Int[Tensor, "B L"] | Mixture,
        t: Time | None = None,
        positions: Bool[Tensor, "B L"] | None = None,
        valid: Bool[Tensor, "B L"] | None = None,
        reduce: Reduce | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """Logits [B, L, V]; with `positions`, [positions.sum(), V] in row-major order.

        `valid` marks what is not padding: nothing attends to the rest. With `reduce`, what it makes of chunks of the
        packed rows (see `multimdm.models.head`).
        """
        features = self.features(x_t, t, positions, valid)
        if reduce is None:
            return self.logits(features)
        flat = features.reshape(-1, features.shape[-1])
        return reduce_logits(flat, self.ff_out.weight, self._bias(), reduce)

    def features(
        self,
        x_t: Int[Tensor, "B L"] | Mixture,
        t: Time | None = None,
        positions: Bool[Tensor, "B L"] | None = None,
        valid: Bool[Tensor, "B L"] | None = None,
    ) -> Tensor:
        """What the head sees: [B, L, d]; with `positions`, [positions.sum(), d]."""
        weight = self.ff_out.weight
        x_t, positions, valid = brought(x_t, weight), brought(positions, weight), brought(valid, weight)
        x = self._embed(x_t)
        L, config = x.shape[1], self.config
        if config.max_length < L:
            raise ValueError(f"sequences may be {config.max_length} long at most (max_length); got {L}")
        angles = rotary_angles(L, config.hidden_dim // config.num_heads, config.rope_theta, x.device)
        mask = None if valid is None else valid[:, None, None, :]
        for block in self.blocks:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, angles, mask, use_reentrant=False)
            else:
                x = block(x, angles, mask)
        return self.ln_f(x if positions is None else x[positions.nonzero(as_tuple=True)])

    def logits(self, features: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows V"]:
        """The head: `logits(features(...))` is what a call gives."""
        weight = self.ff_out.weight
        return F.linear(features.to(weight.dtype), weight, self._bias())

    def rows_of(self, ids: Int[Tensor, "*s"]) -> Int[Tensor, "*s"]:
        """Rows of the embedding: a clean token's own, a mask's wherever it lies."""
        V = self.config.vocab_size
        return torch.where(ids < V, ids, self.mask_rows[(ids - V).clamp_min(0)])

    def _embed(self, x_t: Tensor | Mixture) -> Float[Tensor, "B L d"]:
        if not isinstance(x_t, tuple):
            return self.wte(self.rows_of(x_t))
        weights, ids = x_t
        rows = self.wte(self.rows_of(ids))
        weights = weights.to(rows.dtype)
        return weights @ rows if ids.ndim == 1 else (weights[..., None, :] @ rows)[..., 0, :]

    def _bias(self) -> Float[Tensor, " V"]:
        return self.column_bias.to(self.ff_out.weight.dtype)
