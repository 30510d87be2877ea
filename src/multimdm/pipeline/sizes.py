"""What config.json says of sizes, compared with what the header of the weights says, before anything is allocated."""

import re
from collections.abc import Iterable

import torch

from multimdm._checks import require
from multimdm._inert import shown
from multimdm.models import DiT, DiTConfig
from multimdm.pipeline.tensor_file import TensorFile


def check_sizes(config: DiTConfig, tensors: TensorFile, prefix: str) -> None:
    """Names, shapes and kinds of number of all weights; a size of 2 ** 40 in a small file costs nothing."""
    where = tensors.path
    rows = config.vocab_size + config.num_masks + config.noise_rows
    first = {"vocab_embed.embedding": [rows, config.hidden_dim], "sigma_map.mlp.0.bias": [config.cond_dim]}
    if config.absolute_positions:
        first["position_embed.embedding"] = [config.max_length, config.hidden_dim]
    for name, shape in first.items():  # by which all other sizes are bounded
        _check_shape(tensors, prefix + name, shape)
    blocks = count_blocks(tensors, prefix)
    require(blocks == config.num_blocks, f"{where} has {blocks} blocks; its config.json says {config.num_blocks}")
    with torch.device("meta"):  # shapes without memory
        wanted = {prefix + name: list(x.shape) for name, x in DiT(config).state_dict().items()}
    extra = sorted(name for name in tensors if name.startswith(prefix) and name not in wanted)
    require(not extra, f"{where} has {len(extra)} tensors too many, the first is {shown((extra or [''])[0])}")
    missing = sorted(name for name in wanted if name not in tensors)
    require(not missing, f"{where} lacks {len(missing)} tensors, the first is '{(missing or [''])[0]}'")
    for name, shape in wanted.items():
        _check_shape(tensors, name, shape)


def count_blocks(names: Iterable[str], prefix: str) -> int:
    """How many blocks have weights."""
    pattern = re.compile(re.escape(prefix) + r"blocks\.(\d{1,9})\.")
    return len({match[1] for name in names if (match := pattern.match(name))})


def _check_shape(tensors: TensorFile, name: str, shape: list[int]) -> None:
    require(name in tensors, f"{tensors.path} lacks the tensor '{name}'")
    found = tensors.shapes[name]
    require(found == shape, f"{tensors.path}: '{name}' has shape {found}; its config.json says {shape}")
    require(tensors.is_float(name), f"{tensors.path}: '{name}' holds {tensors.dtypes[name]}, and weights are floats")
