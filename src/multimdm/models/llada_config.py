"""What a LLaDA network is made of, in our terms and in those of the published config.json."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from multimdm._complaints import explain
from multimdm.models.config import LONGEST

Positive = Annotated[int, Field(gt=0)]

PUBLISHED_MASK = {126_464: 126_336}
"""Size of a published vocabulary -> its mask, for a config.json that does not tell."""

_REQUIRED: dict[str, Any] = {
    "block_type": "llama",
    "block_group_size": 1,
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "rope": True,
    "alibi": False,
    "attention_layer_norm": False,
    "input_emb_norm": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "bias_for_layer_norm": False,
    "scale_logits": False,
    "weight_tying": False,
}
"""The variant that was published; the family's code knows others, which ours does not compute."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class LLaDAConfig:
    """The bidirectional LLaMA of LLaDA: RMS norms, rotary positions, SwiGLU, a head of its own, no sense of time."""

    vocab_size: Annotated[int, Field(ge=2)]
    """V: columns of the head. Clean tokens are the ids 0 .. V-1, the ids of masks among them (never predicted)."""
    mask_rows: tuple[int, ...]
    """The row of the input embedding of each mask; the masks of the process are the ids V .. V+M-1."""
    num_rows: Positive
    """Rows of the input embedding: V, or more if masks were appended."""
    hidden_dim: Positive
    num_blocks: Positive
    num_heads: Positive
    num_kv_heads: Positive
    mlp_dim: Positive
    max_length: Annotated[int, Field(gt=0, le=LONGEST)]
    rope_theta: Annotated[float, Field(gt=0)] = 500_000.0
    norm_eps: Annotated[float, Field(gt=0)] = 1e-5

    @property
    def num_masks(self) -> int:
        """M, the number of masks."""
        return len(self.mask_rows)

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Columns that are never predicted: those of masks."""
        return tuple(row for row in self.mask_rows if row < self.vocab_size)

    @model_validator(mode="after")
    def _check(self) -> "LLaDAConfig":
        if self.hidden_dim % self.num_heads or (self.hidden_dim // self.num_heads) % 2:
            raise ValueError(
                f"hidden_dim must be an even multiple of num_heads; got {self.hidden_dim} and {self.num_heads}"
            )
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads must be a multiple of num_kv_heads; got {self.num_heads} and {self.num_kv_heads}"
            )
        if self.num_rows < self.vocab_size:
            raise ValueError(f"num_rows must be at least vocab_size, {self.vocab_size}; got {self.num_rows}")
        if not self.mask_rows or len(set(self.mask_rows)) != len(self.mask_rows):
            raise ValueError(f"mask_rows must name one row per mask, all different; got {list(self.mask_rows)}")
        for row in self.mask_rows:
            if not 0 <= row < self.num_rows:
                raise ValueError(f"mask_rows must lie in 0..{self.num_rows - 1}; got {row}")
        return self


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Adapter:
    """LoRA on the projections of all blocks, and rows of its own for the masks."""

    rank: Annotated[int, Field(gt=0)] = 8
    alpha: Annotated[float, Field(gt=0)] = 16.0
    """What LoRA adds is multiplied by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The dropout of LoRA's input in training."""
    base: str = ""
    """The network that it was made for: a directory or a name on the Hub."""
    base_digest: str = ""
    """A hash of some of its weights: on another base the adapter would be noise."""


def with_masks(config: LLaDAConfig, rows: Sequence[int]) -> LLaDAConfig:
    """The same network with its masks on these rows, and as many rows as that takes."""
    return replace(config, mask_rows=tuple(rows), num_rows=max(config.num_rows, max(rows) + 1))


def read_published(settings: Mapping[str, Any], where: str) -> LLaDAConfig:
    """Our configuration from the published config.json of a network with one mask; errors name the field."""
    if settings.get("model_type") != "llada":
        raise ValueError(f"{where}: model_type must be 'llada'; got {repr(settings.get('model_type'))[:80]}")
    for name, value in _REQUIRED.items():
        if name in settings and settings[name] != value:
            raise ValueError(
                f"{where}: {name} must be {value!r}, as in the published networks; got {repr(settings[name])[:80]}"
            )
    sizes = {name: _whole(settings, name, where) for name in ("d_model", "n_heads", "n_layers", "vocab_size")}
    # The published code gives the head as many columns as the embedding has rows.
    rows = _whole(settings, "embedding_size", where) if settings.get("embedding_size") else sizes["vocab_size"]
    mask = settings.get("mask_token_id", PUBLISHED_MASK.get(rows))
    if not isinstance(mask, int) or isinstance(mask, bool) or not 0 <= mask < rows:
        raise ValueError(
            f"{where}: mask_token_id must be an id from 0 to {rows - 1}; got {repr(mask)[:80]}: add it to the file"
        )
    heads = sizes["n_heads"]
    try:
        return LLaDAConfig(
            vocab_size=rows,
            mask_rows=(mask,),
            num_rows=rows,
            hidden_dim=sizes["d_model"],
            num_blocks=sizes["n_layers"],
            num_heads=heads,
            num_kv_heads=_whole(settings, "n_kv_heads", where) if settings.get("n_kv_heads") else heads,
            mlp_dim=_whole(settings, "mlp_hidden_size", where)
            if settings.get("mlp_hidden_size")
            else int(_number(settings, "mlp_ratio", 4, where) * sizes["d_model"]),
            max_length=_whole(settings, "max_sequence_length", where),
            rope_theta=_number(settings, "rope_theta", 10_000.0, where),
            norm_eps=_number(settings, "rms_norm_eps", 1e-5, where),
        )
    except ValidationError as error:
        raise ValueError(explain(error, where)) from None


def published(config: LLaDAConfig) -> dict[str, Any]:
    """The published config.json of a network; our own file beside it names the rows of masks that were appended."""
    return {
        "architectures": ["LLaDAModelLM"],
        "model_type": "llada",
        "d_model": config.hidden_dim,
        "n_heads": config.num_heads,
        "n_kv_heads": config.num_kv_heads,
        "n_layers": config.num_blocks,
        "mlp_hidden_size": config.mlp_dim,
        "max_sequence_length": config.max_length,
        "rope_theta": config.rope_theta,
        "rope_full_precision": True,
        "rms_norm_eps": config.norm_eps,
        "vocab_size": config.vocab_size,
        "embedding_size": config.vocab_size,
        "mask_token_id": config.mask_rows[0],
        **_REQUIRED,
    }


def _whole(settings: Mapping[str, Any], name: str, where: str) -> int:
    value = settings.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{where}: {name} must be a positive integer; got {repr(value)[:80]}")
    return value


def _number(settings: Mapping[str, Any], name: str, usual: float, where: str) -> float:
    value = settings.get(name, usual)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e12:
        raise ValueError(f"{where}: {name} must be a positive number; got {repr(value)[:80]}")
    return float(value)
