"""Weights in several safetensors files, as large checkpoints are published: found, checked, and read one by one."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import safetensors
from torch import Tensor

from multimdm._checks import require
from multimdm._files import read_json
from multimdm._inert import reason, shown
from multimdm.pipeline.files import write_safetensors
from multimdm.pipeline.tensor_file import check_tensor_file

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
SHARD_BYTES = 5 * 10**9
"""The usual size of a file on the Hub."""


class Shards:
    """The tensors of a directory by name. Opening reads their names and shapes; values are read when asked for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files = ExitStack()
        self._readers: dict[str, Any] = {}
        index = directory / _INDEX
        where: dict[str, str] = {}
        if index.exists():
            where = read_json(index).get("weight_map") or {}
            require(isinstance(where, dict) and bool(where), f"{index} has no 'weight_map' of tensors to files")
            for file in where.values():  # a path could lead anywhere
                require(
                    isinstance(file, str)
                    and Path(file).name == file
                    and file.endswith(".safetensors")
                    and len(file.encode(errors="replace")) < 256
                    and "\0" not in file,
                    f"{index}: weight_map must name safetensors files beside it; got {shown(file)}",
                )
            names = sorted(set(where.values()))
            missing = [name for name in names if not (directory / name).is_file()]
            require(
                not missing,
                f"{directory} lacks {len(missing)} of {len(names)} files of weights: {', '.join(missing)}; "
                "fetch them again",
            )
        else:
            names = [_SINGLE]
            check_tensor_file(directory / _SINGLE)
        for name in names:
            reader = self._open(directory / name)
            self._readers |= dict.fromkeys(reader.keys(), reader)
        lost = sorted(where.keys() - self._readers.keys())
        require(
            not lost, f"{index} names {len(lost)} tensors that no file has, the first is {shown((lost or [''])[0])}"
        )

    def _open(self, path: Path) -> Any:
        try:
            return self._files.enter_context(safetensors.safe_open(path, framework="pt"))
        except (safetensors.SafetensorError, OSError) as error:
            raise ValueError(f"{path} is not a whole safetensors file: {reason(error)}; fetch it again") from None

    def __enter__(self) -> "Shards":
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def shape(self, name: str) -> list[int]:
        """The shape of a tensor, without reading its values."""
        return list(self._readers[name].get_slice(name).get_shape())

    def __getitem__(self, name: str) -> Tensor:
        """The values: pages of the file, which the system reads when they are touched."""
        return self._readers[name].get_tensor(name)


def write_shards(tensors: Mapping[str, Tensor], directory: Path, limit: int = SHARD_BYTES) -> None:
    """Write one file, or several of at most `limit` bytes each with an index."""
    groups: list[dict[str, Tensor]] = [{}]
    size = total = 0
    for name, tensor in tensors.items():
        nbytes = tensor.numel() * tensor.element_size()
        if groups[-1] and size + nbytes > limit:
            groups.append({})
            size = 0
        groups[-1][name] = tensor.detach().contiguous()
        size, total = size + nbytes, total + nbytes
    if len(groups) == 1:
        write_safetensors(groups[0], directory / _SINGLE)
        return
    where: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        file = f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        write_safetensors(group, directory / file)
        where |= dict.fromkeys(group, file)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (directory / _INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
