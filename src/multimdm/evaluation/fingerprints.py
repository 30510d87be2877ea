"""What files hold, as a short name: results that were measured with other files are not reused."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def fingerprint_of_files(paths: Iterable[Path]) -> str:
    """sha256 of the names and contents of files; directories and hidden files are passed over."""
    digest = hashlib.sha256()
    for path in sorted(path for path in paths if path.is_file() and not path.name.startswith(".")):
        with open(path, "rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def fingerprint_of_checkpoint(directory: Path) -> str:
    """Of weights, settings and tokenizer; whatever else lies in the directory does not matter."""
    names = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    return fingerprint_of_files(directory / name for name in names)
