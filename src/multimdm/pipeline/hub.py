"""Checkpoints by their name on the Hugging Face Hub."""

import re
from pathlib import Path

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FILES = ["*.json", "*.safetensors", "chat_template.jinja"]
"""Nothing else: no code, no pickles."""
_SETTINGS = ("config.json", "masks.json")
"""One of them is in every checkpoint."""


def local_directory(path_or_name: str | Path) -> Path:
    """The path itself if something is there, or the model inside it if it is a run's directory; else the local copy of
    what has this name on the Hub.

    Only weights and settings are fetched: no code of strangers.
    """
    path = Path(path_or_name)
    if path.exists() or not _NAME.fullmatch(str(path_or_name)):
        return _checked(_inside(path))
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(path_or_name), allow_patterns=_FILES))
    except Exception as error:  # the client has many kinds of failure
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(
            f"{path_or_name} is neither a directory here nor a checkpoint that the Hub gives us ({reason})"
        ) from None


def _inside(path: Path) -> Path:
    """A run keeps its model in the folder model: whoever names the run means it."""
    if any((path / name).is_file() for name in _SETTINGS):
        return path
    model = path / "model"
    return model if any((model / name).is_file() for name in _SETTINGS) else path


def _checked(directory: Path) -> Path:
    """Its files must be files, and their own: a link in what a stranger packed may lead anywhere.

    The Hub's cache keeps files in a folder blobs beside its snapshots, with links to them. A directory may itself be
    reached by a link, which its owner made.
    """
    if not directory.is_dir():
        return directory
    real = directory.resolve()
    homes = (real, real.parent.parent / "blobs") if real.parent.name == "snapshots" else (real,)
    for entry in directory.iterdir():
        if not any(entry.match(pattern) for pattern in _FILES) or entry.is_dir():
            continue
        target = entry.resolve()
        if entry.is_symlink() and not any(target.is_relative_to(home) for home in homes):
            raise ValueError(f"{entry} is a link to a place outside of the checkpoint; put the file itself there")
        if not target.is_file():
            raise ValueError(f"{entry} is not a file")
    return directory
