"""Files of checkpoints: they appear whole or not at all, are read without running code, and have fingerprints."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from multimdm._files import whole_directory
from multimdm._inert import reason
from multimdm.pipeline.tensor_file import check_tensor_file


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A directory to write into that becomes `path` if all goes well; nothing that is there is overwritten."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} exists already; choose another place or remove it")
    with whole_directory(path) as partial:
        yield partial


def sha256_of(path: Path) -> str:
    """The hash of what a file holds, which is read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; errors name the file."""
    check_tensor_file(path)
    try:
        return load_file(path)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is not a safetensors file: {reason(error)}") from None


def write_safetensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors; a full disk is an OSError that names the file."""
    try:
        save_file(tensors, path)
    except safetensors.SafetensorError as error:
        raise OSError(f"cannot write {path}: {error}") from error


def read_lightning(path: Path) -> tuple[dict[str, Tensor], bool]:
    """The weights of a Lightning checkpoint, and whether they are the moving average.

    The average is a list in the order of the parameters: the state's order without its buffers.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can fail in any way
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(
            f"{path} cannot be read safely ({reason}). If it holds objects besides tensors, save "
            "its 'state_dict' and 'ema' alone with torch.save where it was made, and import that"
        ) from None
    if not isinstance(content, dict) or not _named_tensors(content.get("state_dict")):
        raise ValueError(f"{path} has no 'state_dict' of tensors: it is not a Lightning checkpoint")
    state = {name: x for name, x in content["state_dict"].items() if "backbone." in name}
    if not content.get("ema"):
        return state, False
    names = [name for name in state if not name.endswith("inv_freq")]
    ema = content["ema"]
    shadow = ema.get("shadow_params") if isinstance(ema, dict) else None
    if not isinstance(shadow, list) or not all(isinstance(x, Tensor) for x in shadow):
        raise ValueError(f"{path}: 'ema' has no list of tensors 'shadow_params'")
    if len(shadow) != len(names):
        raise ValueError(f"{path}: 'ema' has {len(shadow)} tensors for {len(names)} parameters")
    for name, tensor in zip(names, shadow, strict=True):
        if tensor.shape != state[name].shape:
            raise ValueError(
                f"{path}: 'ema' does not follow the order of the parameters: "
                f"'{name}' has shape {list(state[name].shape)}, the average {list(tensor.shape)}"
            )
        state[name] = tensor
    return state, True


def _named_tensors(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(x, Tensor) for x in value.values())


def fingerprint_of_files(paths: Iterable[Path]) -> str:
    """sha256 of the names and contents of files; directories and hidden files are passed over."""
    digest = hashlib.sha256()
    for path in sorted(path for path in paths if path.is_file() and not path.name.startswith(".")):
        digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    return digest.hexdigest()


_JUDGE_FILES = (
    *("config.json", "*.safetensors", "*.safetensors.index.json"),
    *("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "*.model"),
)
"""Weights, settings and tokenizer of a Hugging Face model or of a checkpoint of ours."""


def fingerprint_of_judge(directory: Path) -> str:
    """A hash of the files that scores depend on: notes, logs and weights in other formats do not matter."""
    return fingerprint_of_files({path for pattern in _JUDGE_FILES for path in directory.glob(pattern)})


def fingerprint_of_checkpoint(directory: Path) -> str:
    """A hash of weights, settings and tokenizer; whatever else lies in the directory does not matter."""
    names = ("config.json", "*.safetensors", "tokenizer.json", "tokenizer_config.json", "masks.json")
    return fingerprint_of_files({path for name in names for path in directory.glob(name)})
