"""What a network is made of; stored in every checkpoint."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

Positive = Annotated[int, Field(gt=0)]
MaskRows = Literal["copies", "noise", "tokens"]
"""How the rows of new masks are made."""
LONGEST = 2**20
"""The longest of all sequences: rotary networks have no weights that would bound them."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class DiTConfig:
    """The diffusion transformer of MDLM and DUO."""

    vocab_size: Annotated[int, Field(ge=2)]
    """V: clean tokens are the ids 0 .. V-1 and the columns of the logits."""
    num_masks: Annotated[int, Field(ge=0)] = 1
    """M: masks are the ids V .. V+M-1; they have rows in the embedding and no column in the logits."""
    hidden_dim: Positive = 768
    num_blocks: Positive = 12
    num_heads: Positive = 12
    cond_dim: Positive = 128
    """Width of the time embedding."""
    max_length: Annotated[int, Field(gt=0, le=LONGEST)] = 1024
    """The longest sequence the network is made for."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    conditioning: Literal["sigma", "time", "none"] = "sigma"
    """What the network sees of t: sigma = -log max(1 - t, 1e-3), t itself, or nothing (MDLM)."""
    absolute_positions: bool = False
    """Add a learned vector per position to the input. Rotary embedding tells distances only, so that a sequence of one
    repeated mask looks the same everywhere; where texts begin at position 0 (padded layouts, Tales) that loses much."""
    embedding_norm: Annotated[float, Field(gt=0)] | None = None
    """Scale every row of the token embedding to this length (CANDI); None uses the rows as they are."""
    time_gate: bool = False
    """What the network sees of t passes a gate that starts at zero: for one that was trained without it."""
    causal: bool = False
    """Attend to earlier positions only: an autoregressive model. It is shown a start symbol (the id V, which is its one
    mask) and all tokens but the last, so that the logits at l are for token l."""
    suppressed: tuple[int, ...] = ()
    """Clean ids that are never predicted, such as a mask inside a foreign vocabulary (BERT's 103)."""
    mask_fade: Annotated[float, Field(gt=0)] | None = None
    """rho, for masks whose rows fade: at time t they differ from their mean by (1 - t)^rho = beta_t of what they differ
    by at t = 0, for a mask is the token's designated one with probability beta_t, and any mask otherwise. Of schedules
    with alpha_t = 1 - t."""
    noise_rows: Annotated[int, Field(ge=0)] = 0
    """Rows V+M .. V+2M-1 of the embedding, for the noise x_1 that is shown beside the state: one per mask, or none."""

    @model_validator(mode="after")
    def _check(self) -> "DiTConfig":
        if self.hidden_dim % self.num_heads:
            raise ValueError(f"hidden_dim must be a multiple of num_heads; got {self.hidden_dim} and {self.num_heads}")
        if (self.hidden_dim // self.num_heads) % 2:
            raise ValueError(
                f"hidden_dim / num_heads must be even for rotary embeddings; got {self.hidden_dim // self.num_heads}"
            )
        if self.time_gate and self.conditioning == "none":
            raise ValueError("time_gate needs a conditioning to let through: 'sigma' or 'time'; got 'none'")
        if self.mask_fade is not None and self.noise_rows:
            raise ValueError("mask_fade must be left out beside noise_rows: kept noise tells as much at any time")
        if self.noise_rows not in (0, self.num_masks):
            raise ValueError(f"noise_rows must be 0 or num_masks, {self.num_masks}; got {self.noise_rows}")
        for column in self.suppressed:
            if not 0 <= column < self.vocab_size:
                raise ValueError(f"suppressed ids must lie in 0..{self.vocab_size - 1}; got {column}")
        return self


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"hidden_dim": 128, "num_blocks": 4, "num_heads": 4, "cond_dim": 64},
    "mini": {"hidden_dim": 256, "num_blocks": 6, "num_heads": 8, "cond_dim": 128},
    "base": {"hidden_dim": 512, "num_blocks": 8, "num_heads": 8, "cond_dim": 128},
    "small": {"hidden_dim": 768, "num_blocks": 12, "num_heads": 12, "cond_dim": 128},
}
"""Sizes from a laptop's to the paper's: `small` has about 170 million parameters with GPT-2's vocabulary."""
