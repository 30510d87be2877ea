"""A safetensors file: names, shapes and dtypes at once, values one by one."""

from collections.abc import Iterator
from pathlib import Path

import safetensors
from torch import Tensor

from multimdm._inert import reason

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
    """It must be there; pickles in its place are refused, since opening one runs whatever code it holds."""
    if path.is_file():
        return
    pickles = sorted(file.name for file in path.parent.glob("*") if file.suffix in _PICKLES)
    if pickles:
        raise ValueError(
            f"{path} is missing, and {pickles[0]} beside it is a pickle, which may run code of its maker: only "
            "safetensors are read"
        )
    raise ValueError(f"{path} is missing")
