"""The diffusion transformer: (x_t, t) -> logits of the clean tokens, at the positions that are asked for.

Shapes: B sequences of L positions, width d, V clean tokens.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from multimdm.models.config import DiTConfig
from multimdm.models.head import Reduce, reduce_logits
from multimdm.models.layers import Block, Embedding, Output, Rotary, TimeEmbedding, sigma_of_time
from multimdm.models.memory import KeysAndValues
from multimdm.process import Mixture, NoisyMixture, Time
from multimdm.process.places import beside, brought, home_of, widened

_HEAD_SCALE = 0.05
"""The head's rows as a share of the embeddings where training begins: predictions are nearly uniform."""


class DiT(nn.Module):
    """The network of MDLM and DUO.

    Input ids are those of the process: clean tokens 0 .. V-1, masks V .. V+M-1. Logits are over the V clean tokens.
    Rows behind the masks are for noise that is shown beside the state.
    """

    column_bias: Tensor | None

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.config = config
        self.recompute = False
        """Keep only the blocks' inputs for the backward pass and compute the rest again: less memory, more time."""
        self.arithmetic: torch.dtype | None = None
        """The dtype in which products of matrices are computed; None for that of the weights."""
        d = config.hidden_dim
        rows = config.vocab_size + config.num_masks + config.noise_rows
        self.vocab_embed = Embedding(rows, d, config.embedding_norm, config.noise_rows)
        self.position_embed = Embedding(config.max_length, d) if config.absolute_positions else None
        self.sigma_map = TimeEmbedding(config.cond_dim, config.time_gate)
        self.rotary_emb = Rotary(d // config.num_heads)
        blocks = [Block(d, config.num_heads, config.cond_dim, config.dropout) for _ in range(config.num_blocks)]
        self.blocks = nn.ModuleList(blocks)
        self.output_layer = Output(d, config.cond_dim, config.vocab_size)
        column_bias = None
        if config.suppressed:
            column_bias = torch.zeros(config.vocab_size)
            column_bias[list(config.suppressed)] = -torch.inf
        self.register_buffer("column_bias", column_bias, persistent=False)

    def forward(
        self,
        x_t: Int[Tensor, "B L"] | Mixture | NoisyMixture,
        t: Time | None = None,
        positions: Bool[Tensor, "B L"] | None = None,
        valid: Bool[Tensor, "B L"] | None = None,
        reduce: Reduce | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """Logits [B, L, V]; with `positions`, [positions.sum(), V] in row-major order.

        `t` is one number, or [B], or [B, L]. `valid` marks what is not padding: nothing attends to the rest. With
        `reduce`, what it makes of chunks of the packed rows (see `multimdm.models.head`).
        """
        return self.read(self.features(x_t, t, positions, valid), reduce)

    def read(self, features: Float[Tensor, "*rows d"], reduce: Reduce | None = None) -> Tensor | tuple[Tensor, ...]:
        """The logits of these features, or what `reduce` makes of them: `read(features(...))` is what a call gives."""
        if reduce is None:
            return self.logits(features)
        linear = self.output_layer.linear
        with self._autocast():
            return reduce_logits(features.reshape(-1, features.shape[-1]), linear.weight, self._bias(), reduce)

    def features(
        self,
        x_t: Int[Tensor, "B L"] | Mixture | NoisyMixture,
        t: Time | None = None,
        positions: Bool[Tensor, "B L"] | None = None,
        valid: Bool[Tensor, "B L"] | None = None,
        memory: Sequence[KeysAndValues] | None = None,
    ) -> Tensor:
        """What the map to logits sees: [B, L, d]; with `positions`, [positions.sum(), d].

        With `memory`, one for each block of a causal network, x_t goes on where the positions that are kept there end.
        """
        weight = self.output_layer.linear.weight
        x_t = brought(x_t, weight)
        positions = brought(positions, weight)
        valid = brought(valid, weight)
        with self._autocast():
            x = self._embed(x_t, t)
            seen = 0 if memory is None else memory[0].length
            L = seen + x.shape[1]
            if self.config.max_length < L:
                raise ValueError(f"sequences may be {self.config.max_length} long at most (max_length); got {L}")
            if self.position_embed is not None:
                x = x + self.position_embed.embedding[seen:L]
            c = self.sigma_map(self._condition(t, x))
            cos, sin = self.rotary_emb.angles(L)
            angles = cos[seen:], sin[seen:]
            mask = self._attention_mask(valid, L, seen)
            for block, kept in zip(self.blocks, memory or repeat(None), strict=False):
                if self.recompute and torch.is_grad_enabled():
                    x = checkpoint(block, x, c, angles, mask, self.config.causal, use_reentrant=False)
                else:
                    x = block(x, c, angles, mask, self.config.causal, kept)
            return self.output_layer.features(x, c, positions)

    def logits(self, features: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows V"]:
        """The map to logits: `logits(features(...))` is what a call gives."""
        weight = self.output_layer.linear.weight
        with self._autocast():
            return F.linear(features.to(weight.dtype), weight, self._bias())

    def _autocast(self) -> AbstractContextManager:
        if self.arithmetic is None:
            return nullcontext()
        return torch.autocast(self.output_layer.linear.weight.device.type, self.arithmetic)

    def _embed(self, x_t: Tensor | Mixture | NoisyMixture, t: Time | None) -> Float[Tensor, "B L d"]:
        if isinstance(x_t, NoisyMixture):
            return self.vocab_embed.mix_noisy(x_t, self.config.vocab_size)
        if isinstance(x_t, tuple):
            return self.vocab_embed.mix(*x_t)
        return self.vocab_embed(x_t) if self.config.mask_fade is None else self._embed_fading(x_t, t)

    def _embed_fading(self, x_t: Int[Tensor, "B L"], t: Time | None) -> Float[Tensor, "B L d"]:
        """Rows of tokens as they are; those of masks m_k as m + beta_t (m_k - m), with m their mean."""
        assert self.config.mask_fade is not None
        rows = self.vocab_embed.rows
        x = F.embedding(x_t, rows)
        mean = rows[self.config.vocab_size :].mean(0)
        beta_t = beside((1 - self._time(t, x)) ** self.config.mask_fade, x)
        faded = torch.lerp(mean, x, beta_t[..., None].to(x.dtype))
        hidden = x_t >= self.config.vocab_size
        return torch.where(hidden[..., None], faded, x)

    def _bias(self) -> Float[Tensor, " V"]:
        bias = self.output_layer.linear.bias
        return bias if self.column_bias is None else bias + self.column_bias

    def _condition(self, t: Time | None, x: Tensor) -> Float[Tensor, "b l"]:
        """The number that the blocks see of t, shaped to broadcast against [B, L]."""
        if self.config.conditioning == "none":
            return x.new_zeros(1, 1)
        t = self._time(t, x)
        return beside(sigma_of_time(t) if self.config.conditioning == "sigma" else t, x)

    def _time(self, t: Time | None, x: Tensor) -> Float[Tensor, "b l"]:
        """t, shaped to broadcast against [B, L]."""
        if t is None:
            seen = self.config.conditioning
            reason = "its masks fade with it" if seen == "none" else f"this network is conditioned on {seen}"
            raise ValueError(f"t must be given: {reason}")
        t = widened(torch.as_tensor(t, device=home_of(x.device)))
        if t.shape != x.shape[: t.ndim] or t.ndim > 2:
            raise ValueError(
                f"t must be a number or have shape [B] or [B, L] of {list(x.shape[:2])}; got {list(t.shape)}"
            )
        return t.reshape((*t.shape, *[1] * (2 - t.ndim)))

    def _attention_mask(self, valid: Tensor | None, L: int, seen: int) -> Tensor | None:
        """Who may attend to whom, [B or 1, 1, L or 1, L]; None if the plain or the causal pattern will do."""
        if seen:
            return torch.ones(L - seen, L, dtype=torch.bool, device=self.rotary_emb.inv_freq.device).tril(seen)
        if valid is None:
            return None
        mask = valid[:, None, None, :]
        if self.config.causal:
            mask = mask & torch.ones(L, L, dtype=torch.bool, device=valid.device).tril()
        return mask


@torch.no_grad()
def start_copying(network: DiT) -> None:
    """Let attention begin by copying what it attends to, and the head by reading tokens off the embeddings.

    Values and outputs of attention are the identity, gates are open, and the head's rows are small multiples of the
    embeddings: to repeat a word that stands elsewhere, a network has only to learn where to look. From random weights
    it must learn at the same time where to look and, word by word, how to pass on what it sees; on Tales it does not
    within minutes.
    """
    d = network.config.hidden_dim
    for block in network.blocks:
        assert isinstance(block, Block)
        torch.nn.init.eye_(block.attn_qkv.weight[2 * d :])
        torch.nn.init.eye_(block.attn_out.weight)
        gates = block.adaLN_modulation.bias.unflatten(0, (6, d))
        gates[2] = 1.0
        gates[5] = 1.0
    V = network.config.vocab_size
    network.output_layer.linear.weight.copy_(_HEAD_SCALE * network.vocab_embed.rows[:V])
