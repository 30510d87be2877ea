"""The Hugging Face Hub: checkpoints by their names, and directories that are given to it."""

import re
from pathlib import Path

from multimdm.builtin import builtin_directory
from multimdm.data.hub_silence import hub_silence
from multimdm.data.manifest import is_prepared

_NAME = re.compile(r"(?P<name>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[\w./-]+))?")
_FILES = ["*.json", "*.safetensors", "chat_template.jinja"]
"""What is fetched, and nothing else: no code, no pickles."""
_SETTINGS = ("config.json", "masks.json")
"""One of them is in every checkpoint."""
_OURS = [
    "config.json",
    "masks.json",
    "model.safetensors",
    "model-*-of-*.safetensors",
    "model.safetensors.index.json",
    "cells.safetensors",
    "adapter_config.json",
    "adapter_model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
]
"""Files of a checkpoint: those of an earlier push that a new one lacks would be read as parts of it."""


def local_directory(
    path_or_name: str | Path,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
) -> Path:
    """The path itself if something is there (of a run, the model inside it); else the model of this name that comes
    with the package, or the local copy of what has this name on the Hub.

    A name is `org/name` or `org/name@revision`, with a branch, a tag or a commit. Only weights and settings are
    fetched: never code. What was fetched before is used if the Hub does not answer. Private repositories need a token,
    which the Hub's client finds (`hf auth login`, HF_TOKEN) unless it is given.
    """
    path, found = Path(path_or_name), _NAME.fullmatch(str(path_or_name))
    builtin = builtin_directory(str(path_or_name))
    if builtin is not None and not _is_checkpoint(_inside(path)):  # a folder of other things may have its name
        path = builtin
    if path.exists() or found is None:
        if revision is not None:
            raise ValueError(f"revision is for names on the Hub; {path} is none: leave out {revision!r}")
        return _checked(_inside(path))
    name, named = found["name"], found["revision"]
    if named is not None and revision not in (None, named):
        raise ValueError(f"revision must be that of the name, {named!r}, or left out; got {revision!r}")
    from huggingface_hub import snapshot_download

    silence = None if local_files_only else hub_silence(name, token)
    try:
        return Path(
            snapshot_download(
                name,
                revision=named or revision,
                allow_patterns=_FILES,
                token=token,
                cache_dir=cache_dir,
                local_files_only=local_files_only or silence is not None,
            )
        )
    except Exception as error:  # the client has many kinds of failure
        raise ValueError(
            f"{path_or_name} is neither a directory here nor a checkpoint that the Hub gives us "
            f"({silence or _reason(error)})"
        ) from None


def _inside(path: Path) -> Path:
    """A run keeps its model in the folder model: whoever names the run means it."""
    if _is_checkpoint(path):
        return path
    return path / "model" if _is_checkpoint(path / "model") else path


def _is_checkpoint(directory: Path) -> bool:
    return any((directory / name).is_file() for name in _SETTINGS)


def _checked(directory: Path) -> Path:
    """Its files must be files, and their own: a link in what someone else packed may lead anywhere.

    The Hub's cache keeps files in a folder blobs beside its snapshots, with links to them. A directory may itself be
    reached by a link, which its owner made.
    """
    if not directory.is_dir():
        return directory
    if not _is_checkpoint(directory) and is_prepared(directory):
        raise ValueError(
            f"{directory} is prepared data, not a checkpoint; multimdm train-text {directory} makes a model of it, and "
            f"so do recipes with --data.path {directory} (multimdm recipes lists them)"
        )
    if not _is_checkpoint(directory) and (directory / "checkpoints").is_dir():
        raise ValueError(
            f"{directory} is a run that has not ended and has no model yet; the same command goes on with it"
        )
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


def push_directory(
    directory: Path,
    repo: str,
    private: bool | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
    token: str | bool | None = None,
) -> str:
    """Give all files of a directory to a repository of models, which is made if it is not there; the commit's address.

    A revision is a branch, made likewise. Files of an earlier checkpoint that this one lacks are removed.
    """
    check_repository(repo)
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    silence = hub_silence(repo, token)
    if silence is not None:
        raise ValueError(f"{repo} cannot be pushed ({silence})")
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(repo, branch=revision, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo,
            folder_path=directory,
            revision=revision,
            commit_message=commit_message or "A model of multimdm",
            delete_patterns=_OURS,
        )
    except Exception as error:  # the client has many kinds of failure
        raise ValueError(f"{repo} cannot be pushed ({_reason(error)})") from None
    return str(commit.commit_url)


def check_repository(repo: str) -> None:
    """A name to push to, before any work."""
    found = _NAME.fullmatch(repo)
    if found is None or found["revision"] is not None:
        raise ValueError(f"repo must be a name on the Hub such as org/name, without a revision; got {repo!r}")


def is_hub_name(text: str) -> bool:
    """Whether it may be a name on the Hub, and is not a path here."""
    return _NAME.fullmatch(text) is not None and not Path(text).exists()


def _reason(error: Exception) -> str:
    """The reason of an error, in few words."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    while isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):  # of an upload, in threads
        error = error.__cause__
    if isinstance(error, GatedRepoError):
        return "its owner must grant access first: ask for it on its page, and log in with `hf auth login` or HF_TOKEN"
    if isinstance(error, RepositoryNotFoundError):
        return "there is no such repository, or it is private: log in with `hf auth login`, or set HF_TOKEN"
    if isinstance(error, RevisionNotFoundError):
        return "there is no such revision"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return f"it is not allowed ({status}): log in with `hf auth login`, or set HF_TOKEN, with a token that may"
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
