"""LLaDA checkpoints: the published layout, and small adapters that lie on top of one.

A directory in the published layout (config.json, safetensors in one or many files, the tokenizer's files) is a model
with one mask. Ours add masks.json, which tells of the process and of more masks. An adapter's directory has masks.json,
adapter_model.safetensors and adapter_config.json, the latter two as peft writes them for the published code.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from multimdm._checks import check_complete, require
from multimdm._complaints import explain
from multimdm._files import read_json
from multimdm._inert import shown
from multimdm.data.foreign_tokenizers import saved_tokenizer
from multimdm.data.tokenizer import Tokenizer
from multimdm.models.arithmetic import Precision
from multimdm.models.llada import LLaDA
from multimdm.models.llada_config import Adapter, LLaDAConfig, published, read_published, with_masks
from multimdm.models.llada_masks import expand_llada
from multimdm.models.lora import PROJECTIONS, adapter_tensors, load_adapter
from multimdm.pipeline.files import read_safetensors, write_safetensors
from multimdm.pipeline.hub import local_directory
from multimdm.pipeline.mask_settings import MASKS, MaskSettings, describe_masks
from multimdm.pipeline.settings import dump, read_file
from multimdm.pipeline.shards import SHARD_BYTES, Shards, write_shards
from multimdm.pipeline.tensor_file import count_blocks
from multimdm.process import MultiMask
from multimdm.samplers.advice import SamplingAdvice

_PREFIX = "model.transformer."
_PEFT_PREFIX = f"base_model.model.{_PREFIX}"
_OVER_VOCABULARY = (f"{_PREFIX}wte.weight", f"{_PREFIX}ff_out.weight")
_ADAPTER, _ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"


@dataclass(frozen=True)
class Loaded:
    """What a directory in LLaDA's layout holds."""

    network: LLaDA
    process: MultiMask
    tokenizer: Tokenizer | None
    lineage: tuple[dict[str, Any], ...] = ()
    advice: SamplingAdvice | None = None


def is_llada(directory: Path) -> bool:
    """Whether a directory is for this file to read."""
    if (directory / MASKS).is_file():
        return True
    config = directory / "config.json"
    return config.is_file() and read_json(config).get("model_type") == "llada"


def is_adapter(directory: Path) -> bool:
    """Whether it holds an adapter instead of a whole network."""
    return (directory / _ADAPTER).is_file()


def load_llada(
    directory: Path, device: torch.device, precision: Precision = "auto", base: str | Path | None = None
) -> Loaded:
    """A network, or an adapter on top of its base (where the adapter says, unless `base` does).

    Everything that can be known to be wrong before weights are read is.
    """
    settings = _mask_settings(directory)
    if settings is None or settings.adapter is None:
        require(base is None, f"base must be left out: {directory} is a whole network, not an adapter")
        return _load_whole(directory, device, precision)
    tensors = read_safetensors(directory / _ADAPTER)
    place = local_directory(base if base is not None else settings.adapter.base)
    require(
        place.is_dir(),
        f"{directory} is an adapter of {settings.adapter.base}, which is not here; say where it is (base)",
    )
    config = _config(place, _mask_settings(place))
    _check_adapter(settings, config, tensors, directory, place)
    require(
        base_digest(place) == settings.adapter.base_digest,
        f"{directory} was trained on another base than {place}: their weights differ",
    )
    whole = _load_whole(place, device, precision)
    network = expand_llada(whole.network, settings.mask_ids)
    adapter = replace(settings.adapter, base=str(place) if base is not None else settings.adapter.base)
    load_adapter(network, adapter, {name.removeprefix(_PEFT_PREFIX): x for name, x in tensors.items()})
    tokenizer = saved_tokenizer(directory) or whole.tokenizer
    return Loaded(network.eval(), settings.process(), tokenizer, settings.lineage, settings.advice)


def load_adapter_alone(directory: Path) -> Loaded:
    """An adapter in a network without other weights: it cannot be run, only looked at and gone on with."""
    settings = _mask_settings(directory)
    require(settings is not None and settings.adapter is not None, f"{directory} holds no adapter")
    assert settings is not None
    assert settings.adapter is not None
    tensors = read_safetensors(directory / _ADAPTER)
    base = base_model_config(settings.adapter.base)
    _check_rank(settings.adapter, tensors, directory)
    require(
        settings.vocab_size == base.vocab_size,
        f"{directory} was made for a vocabulary of {settings.vocab_size} ids; its base has {base.vocab_size}",
    )
    network = LLaDA(with_masks(base, settings.mask_ids), device="meta")
    load_adapter(network, settings.adapter, {name.removeprefix(_PEFT_PREFIX): x for name, x in tensors.items()})
    return Loaded(network.eval(), settings.process(), saved_tokenizer(directory), settings.lineage, settings.advice)


def base_model_config(path: str | Path) -> LLaDAConfig:
    """The configuration of a base, read from its small files alone."""
    directory = local_directory(path)
    require(directory.is_dir(), f"{directory} is not a checkpoint directory")
    return _config(directory, _mask_settings(directory))


def base_lineage(path: str | Path) -> tuple[dict[str, Any], ...]:
    """How a base came to be, without its weights; nothing is known of a published one."""
    settings = _mask_settings(local_directory(path))
    return () if settings is None else settings.lineage


def base_digest(path: str | Path) -> str:
    """A hash that tells one base from another: of its last norm and the row of its mask, as they are stored."""
    directory = local_directory(path)
    mask = base_model_config(directory).mask_rows[0]
    with Shards(directory) as shards:
        parts = shards[f"{_PREFIX}wte.weight"][mask], shards[f"{_PREFIX}ln_f.weight"]
        return hashlib.sha256(b"".join(x.float().contiguous().numpy().tobytes() for x in parts)).hexdigest()


def save_llada(
    network: LLaDA,
    process: MultiMask,
    lineage: tuple[dict[str, Any], ...],
    directory: Path,
    shard_bytes: int = SHARD_BYTES,
    advice: SamplingAdvice | None = None,
) -> None:
    """Write an adapter if the network has one, else the published layout."""
    settings = describe_masks(process, network.config.mask_rows, network.adapter, lineage, advice)
    _write_json(directory / MASKS, dump(settings))
    if network.adapter is not None:
        tensors = {_PEFT_PREFIX + name: x.detach().cpu() for name, x in adapter_tensors(network).items()}
        write_safetensors(tensors, directory / _ADAPTER)
        _write_json(directory / _ADAPTER_CONFIG, _peft_config(network.adapter, network.config))
        return
    _write_json(directory / "config.json", published(network.config))
    write_shards({_PREFIX + name: x for name, x in network.state_dict().items()}, directory, shard_bytes)


def _load_whole(directory: Path, device: torch.device, precision: Precision) -> Loaded:
    settings = _mask_settings(directory)
    config, tokenizer = _config(directory, settings), saved_tokenizer(directory)
    _check_vocabulary(tokenizer, config, directory)
    require(
        settings is None or settings.vocab_size == config.vocab_size,
        f"{directory}: {MASKS} speaks of {settings and settings.vocab_size} tokens, config.json of {config.vocab_size}",
    )
    with Shards(directory) as shards:
        _check_first(shards, config)
        network = LLaDA(config, device="meta")
        _check_tensors(shards, network)
        _read_weights(shards, network, device, precision)
    network.to(device)  # what is no weight
    if settings is None:
        return Loaded(network.eval(), MultiMask(config.vocab_size, 1), tokenizer)
    return Loaded(network.eval(), settings.process(), tokenizer, settings.lineage, settings.advice)


def _read_weights(shards: Shards, network: LLaDA, device: torch.device, precision: Precision) -> None:
    """Into a network without weights, one tensor after the other: what is in memory is the network alone."""
    dtype = {"auto": None, "bfloat16": torch.bfloat16}.get(precision, torch.float32)
    for name, _ in list(network.named_parameters()):
        parent, _, leaf = name.rpartition(".")
        value = shards[_PREFIX + name]
        setattr(network.get_submodule(parent), leaf, nn.Parameter(value.to(device, dtype or value.dtype)))


def _check_first(shards: Shards, config: LLaDAConfig) -> None:
    """The sizes that bound all others, before as much as the outline of a network is made."""
    where, d = shards.directory, config.hidden_dim
    blocks = count_blocks(shards, _PREFIX)
    require(blocks == config.num_blocks, f"{where} has {blocks} blocks; its config.json says {config.num_blocks}")
    bounds = {"wte.weight": [config.num_rows, d], "blocks.0.ff_proj.weight": [config.mlp_dim, d]}
    for name, shape in bounds.items():
        require(_PREFIX + name in set(shards), f"{where} lacks 1 tensors, the first is '{_PREFIX + name}'")
        _check_shape(shards, _PREFIX + name, shape)


def _check_shape(shards: Shards, name: str, shape: list[int]) -> None:
    found = shards.shape(name)
    hint = ": the weights are of another vocabulary" if name in _OVER_VOCABULARY else ""
    require(found == shape, f"{shards.directory}: '{name}' has shape {found}; its config.json says {shape}{hint}")


def _check_tensors(shards: Shards, network: LLaDA) -> None:
    """Names and shapes, before any value is read."""
    wanted = {_PREFIX + name: list(weight.shape) for name, weight in network.named_parameters()}
    check_complete(str(shards.directory), wanted, shards)
    for name, shape in wanted.items():
        _check_shape(shards, name, shape)


def _check_adapter(
    settings: MaskSettings, config: LLaDAConfig, tensors: dict[str, Tensor], directory: Path, base: Path
) -> None:
    """An adapter and the base that it is to lie on."""
    require(
        settings.vocab_size == config.vocab_size,
        f"{directory} was made for a vocabulary of {settings.vocab_size} ids; {base} has {config.vocab_size}",
    )
    require(
        config.num_masks == 1,
        f"the base of an adapter must have one mask, of which more are made; {base} has {config.num_masks}",
    )
    require(
        config.mask_rows[0] == settings.mask_ids[0],
        f"{directory} was made for the mask {settings.mask_ids[0]}; that of {base} is {config.mask_rows[0]}",
    )
    assert settings.adapter is not None
    _check_rank(settings.adapter, tensors, directory)
    rows = next((x for name, x in tensors.items() if name.endswith("trainable_tokens_delta")), None)
    found = 0 if rows is None else len(rows)
    require(
        found == len(settings.mask_ids),
        f"{directory}: {MASKS} speaks of M = {len(settings.mask_ids)} masks, {_ADAPTER} has rows for {found}",
    )


def _check_rank(adapter: Adapter, tensors: dict[str, Tensor], directory: Path) -> None:
    """Before factors of the rank that it says are made."""
    for name, factor in tensors.items():
        require(
            ".lora_A." not in name or (factor.ndim == 2 and len(factor) == adapter.rank),
            f"{directory}: {MASKS} speaks of rank {adapter.rank}; {shown(name)} has shape {list(factor.shape)}",
        )


def _check_vocabulary(tokenizer: Tokenizer | None, config: LLaDAConfig, directory: Path) -> None:
    require(
        tokenizer is None or tokenizer.vocab_size <= config.num_rows,
        f"{directory}: its tokenizer has {0 if tokenizer is None else tokenizer.vocab_size} tokens, but its network "
        f"only {config.num_rows}: it is another one's",
    )


def _mask_settings(directory: Path) -> MaskSettings | None:
    file = directory / MASKS
    return read_file(MaskSettings, file) if file.is_file() else None


def _config(directory: Path, settings: MaskSettings | None) -> LLaDAConfig:
    """The settings of a network with however many masks."""
    file = directory / "config.json"
    config = read_published(read_json(file), str(file))
    if settings is None:
        return config
    require(bool(settings.mask_ids), f"{directory / MASKS}: mask_ids must name a row for every mask; it names none")
    try:
        return with_masks(config, settings.mask_ids)
    except ValidationError as error:
        raise ValueError(explain(error, str(directory / MASKS))) from None


def _peft_config(adapter: Adapter, config: LLaDAConfig) -> dict[str, Any]:
    """What peft needs to lay the adapter on the published code's network (whose embedding must have all rows)."""
    return {
        "peft_type": "LORA",
        "base_model_name_or_path": adapter.base,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": adapter.dropout,
        "bias": "none",
        "target_modules": rf".*transformer\.blocks\.\d+\.({PROJECTIONS})",
        "trainable_token_indices": {"wte": list(config.mask_rows)},
        "inference_mode": True,
    }


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
