"""Checkpoints of MDLM and DUO: read into our network, and written back with equal tensors.

Their network has a row and a column for every token of its vocabulary, the mask among them; ours keeps masks after the
clean tokens and predicts none. What our network does not use, the column of the mask, is kept beside it so that nothing
is lost on the way back.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from multimdm._checks import check_complete, require
from multimdm.models.config import DiTConfig
from multimdm.models.dit import DiT

Kind = Literal["mdlm", "duo"]

_EMBEDDING, _WEIGHT, _BIAS = "vocab_embed.embedding", "output_layer.linear.weight", "output_layer.linear.bias"
_BERT_VOCABULARY, _BERT_MASK = 30_522, 103
_WRAPPERS = re.compile(r"^(?:(?:backbone|_orig_mod|module|model)\.)+")


@dataclass(frozen=True)
class Foreign:
    """A network from elsewhere, and what of it ours does not hold."""

    network: DiT
    kind: Kind
    mask_id: int | None
    """The mask's id in the foreign vocabulary; None for DUO, which has none."""
    leftover: dict[str, Tensor]
    """Tensors that `export_tensors` needs besides the network."""
    dtypes: dict[str, str]
    """Tensors that were not float32, as ours are, and what they were."""


def strip_wrappers(name: str) -> str:
    """The name inside the network: `backbone._orig_mod.blocks.0...` -> `blocks.0...`."""
    return _WRAPPERS.sub("", name).replace("._orig_mod.", ".")


def import_tensors(
    tensors: dict[str, Tensor],
    kind: Kind,
    settings: Mapping[str, Any],
    mask_id: int | None = None,
) -> Foreign:
    """Our network from the tensors of theirs; `settings` is their config.json, as far as there is one.

    MDLM's mask is the last id, or BERT's 103 in BERT's vocabulary, unless `mask_id` says otherwise.
    """
    require(kind in ("mdlm", "duo"), f"kind must be 'mdlm' or 'duo'; got {kind!r}")
    stripped = [strip_wrappers(name) for name in tensors]
    twice = sorted({name for name in stripped if stripped.count(name) > 1})
    require(not twice, f"the checkpoint has tensor '{(twice or [''])[0]}' twice, under different prefixes")
    tensors = dict(zip(stripped, tensors.values(), strict=True))
    for name in (_EMBEDDING, _WEIGHT, _BIAS, "sigma_map.mlp.0.weight", "rotary_emb.inv_freq"):
        require(name in tensors, f"the checkpoint has no tensor '{name}': it is not a {kind} network of this family")
    require(
        tensors[_EMBEDDING].ndim == 2, f"tensor '{_EMBEDDING}' must have two dimensions, not {tensors[_EMBEDDING].ndim}"
    )
    total, hidden_dim = tensors[_EMBEDDING].shape
    for name, shape in ((_WEIGHT, [total, hidden_dim]), (_BIAS, [total])):
        found = list(tensors[name].shape)
        require(found == shape, f"tensor '{name}' has shape {found}; the network needs {shape}")
    pairs = tensors["rotary_emb.inv_freq"].numel()
    require(
        pairs > 0 and hidden_dim % (2 * pairs) == 0,
        f"tensor 'rotary_emb.inv_freq' has {pairs} frequencies, which do not divide a width of {hidden_dim} into heads",
    )
    if kind == "duo":
        require(mask_id is None, "mask_id must not be given for kind 'duo': its vocabulary has no mask")
    else:
        mask_id = _default_mask(total) if mask_id is None else mask_id
        require(0 <= mask_id < total, f"mask_id must lie in 0..{total - 1}; got {mask_id}")
    # A mask at the end leaves V = total - 1 clean tokens. One inside keeps its id, never predicted, so that the
    # tokenizer's ids stay those of the process.
    last = mask_id == total - 1
    config = DiTConfig(
        vocab_size=total - 1 if last else total,
        num_masks=0 if mask_id is None else 1,
        hidden_dim=hidden_dim,
        num_blocks=_count_blocks(tensors),
        num_heads=hidden_dim // (2 * pairs),
        cond_dim=tensors["sigma_map.mlp.0.weight"].shape[0],
        max_length=settings.get("model_length", 1024),
        dropout=settings.get("dropout", 0.1),
        conditioning="sigma" if kind == "duo" or settings.get("time_conditioning", False) else "none",
        suppressed=() if mask_id is None or last else (mask_id,),
    )
    leftover: dict[str, Tensor] = {}
    state = dict(tensors)
    if mask_id is not None:
        rows = tensors[_EMBEDDING]
        state[_EMBEDDING] = torch.cat([rows[: config.vocab_size], rows[mask_id : mask_id + 1]])
        if last:
            leftover = {"mask_weight": tensors[_WEIGHT][mask_id].clone(), "mask_bias": tensors[_BIAS][mask_id].clone()}
            state[_WEIGHT], state[_BIAS] = tensors[_WEIGHT][:mask_id], tensors[_BIAS][:mask_id]
    network = DiT(config).eval()
    load_exactly(network, state)
    dtypes = {name: str(x.dtype).removeprefix("torch.") for name, x in tensors.items() if x.dtype != torch.float32}
    return Foreign(network, kind, mask_id, leftover, dtypes)


def export_tensors(foreign: Foreign) -> dict[str, Tensor]:
    """The tensors in the Hub's layout, equal to those that were imported."""
    config = foreign.network.config
    expected = 0 if foreign.mask_id is None else 1
    require(
        config.num_masks == expected,
        f"a {foreign.kind} checkpoint has {expected} masks; this network has {config.num_masks}: keep it in our format",
    )
    state = {name: tensor.detach().clone() for name, tensor in foreign.network.state_dict().items()}
    if foreign.mask_id is not None:
        rows, V = state[_EMBEDDING], config.vocab_size
        state[_EMBEDDING] = (
            rows if foreign.mask_id == V else rows[:V].index_copy(0, torch.tensor([foreign.mask_id]), rows[V:])
        )
        if foreign.leftover:
            state[_WEIGHT] = torch.cat([state[_WEIGHT], foreign.leftover["mask_weight"][None]])
            state[_BIAS] = torch.cat([state[_BIAS], foreign.leftover["mask_bias"][None]])
    return {
        f"backbone.{name}": x.to(getattr(torch, foreign.dtypes.get(name, "float32"))).contiguous()
        for name, x in state.items()
    }


def export_settings(foreign: Foreign) -> dict[str, object]:
    """config.json in the Hub's terms."""
    config = foreign.network.config
    outside = foreign.mask_id is not None and foreign.mask_id == config.vocab_size
    return {
        "vocab_size": config.vocab_size + (1 if outside else 0),
        "hidden_dim": config.hidden_dim,
        "cond_dim": config.cond_dim,
        "n_blocks": config.num_blocks,
        "n_heads": config.num_heads,
        "model_length": config.max_length,
        "dropout": config.dropout,
        "time_conditioning": config.conditioning != "none",
    }


def load_exactly(network: DiT, state: dict[str, Tensor]) -> None:
    """Load a state that must fit; what is missing, extra or of another shape is named."""
    wanted = network.state_dict()
    check_complete("the checkpoint", wanted, state)
    for name, tensor in state.items():
        require(
            tensor.shape == wanted[name].shape,
            f"tensor '{name}' has shape {list(tensor.shape)}; the network needs {list(wanted[name].shape)}",
        )
    network.load_state_dict(state)


def _count_blocks(tensors: dict[str, Tensor]) -> int:
    return max((int(match[1]) for name in tensors if (match := re.match(r"blocks\.(\d+)\.", name))), default=-1) + 1


def _default_mask(total: int) -> int:
    return _BERT_MASK if total == _BERT_VOCABULARY else total - 1
