"""What files hold, as a short name: results that were measured with other files are not reused."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from multimdm.pipeline.files import sha256_of


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
    """Of what scores depend on: notes, logs and other weights' formats beside it do not matter."""
    return fingerprint_of_files({path for pattern in _JUDGE_FILES for path in directory.glob(pattern)})


def fingerprint_of_checkpoint(directory: Path) -> str:
    """Of weights, settings and tokenizer; whatever else lies in the directory does not matter."""
    names = ("config.json", "*.safetensors", "tokenizer.json", "tokenizer_config.json", "masks.json")
    return fingerprint_of_files({path for name in names for path in directory.glob(name)})
