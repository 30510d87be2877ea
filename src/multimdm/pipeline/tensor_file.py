"""A safetensors file: names, shapes and dtypes at once, values one by one.

What config.json says of sizes is compared with the header of the file before anything is allocated.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import safetensors
import torch
from torch import Tensor

from multimdm._checks import check_complete, require
from multimdm._inert import reason
from multimdm.models import DiT, DiTConfig

_FLOATS = ("F64", "F32", "F16", "BF16")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


class TensorFile:
    """The tensors of a file by name. What the header says is known before any value is read."""

    def __init__(self, path: Path) -> None:
        check_tensor_file(path)
        self.path = path
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
                self.shapes = {name: list(one.get_shape()) for name, one in slices.items()}
                self.dtypes = {name: str(one.get_dtype()) for name, one in slices.items()}
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            raise ValueError(f"{path} is not a safetensors file: {reason(error)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __contains__(self, name: object) -> bool:
        return name in self.shapes

    def __getitem__(self, name: str) -> Tensor:
        """A copy. The file is opened for it alone, so that pages of others do not stay in memory beside it."""
        with safetensors.safe_open(self.path, framework="pt") as file:
            return file.get_tensor(name).clone()

    def get(self, name: str) -> Tensor | None:
        """The same, or None if there is none."""
        return self[name] if name in self.shapes else None

    def is_float(self, name: str) -> bool:
        """Whether its numbers are such as weights are."""
        return self.dtypes[name] in _FLOATS


def check_tensor_file(path: Path) -> None:
    """Refuse a missing file, and pickles in its place, since opening one runs whatever code it holds."""
    if path.is_file():
        return
    pickles = sorted(file.name for file in path.parent.glob("*") if file.suffix in _PICKLES)
    if pickles:
        raise ValueError(
            f"{path} is missing, and {pickles[0]} beside it is a pickle, which may run code of its maker: only "
            "safetensors are read"
        )
    raise ValueError(f"{path} is missing")


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
    check_complete(str(where), wanted, (name for name in tensors if name.startswith(prefix)))
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
