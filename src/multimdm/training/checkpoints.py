"""Checkpoints of a run: directories that are whole or not there, and are checked before they are believed.

step-00000500/
  model/                 the model as `multimdm.load` reads it (the moving average, if there is one)
  training.safetensors   the weights themselves and the optimiser's state; under FSDP a directory, training/, in which
                         every rank has written its shards
  training.json          step, recipe, size and sha256 of every file, and sha256 of this account itself
"""

import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from multimdm._files import read_json, seal, whole_directory
from multimdm.pipeline import Model, load
from multimdm.pipeline.files import read_safetensors, sha256_of, write_safetensors
from multimdm.pipeline.model import load_outline

if TYPE_CHECKING:
    from multimdm.training.sharded import Together

_log = logging.getLogger(__name__)
_NAME = re.compile(r"step-(\d{8,})")
_ABOUT = "training.json"
_TENSORS = "training.safetensors"
_SHARDS = "training"


@dataclass(frozen=True)
class Checkpoint:
    """One that was found whole."""

    path: Path
    step: int
    recipe: dict[str, Any]
    """The recipe as plain data."""
    data: str
    """The fingerprint of what it was trained on."""
    starts: dict[str, str] = field(default_factory=dict)
    """Key of the recipe -> fingerprint of the checkpoint that it named."""

    def model(self) -> Model:
        """The model, with the averaged weights if there are any."""
        return load(self.path / "model")

    def outline(self) -> Model:
        """The same; of a model with an adapter, the adapter without its base."""
        return load_outline(self.path / "model")

    def tensors(self, spread: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """What the optimiser needs to go on; of shards, what this rank needs of the tensors that it has `spread`."""
        if not (self.path / _SHARDS).is_dir():
            return read_safetensors(self.path / _TENSORS)
        from multimdm.training.sharded import read_shards

        return read_shards(self.path / _SHARDS, spread or {})


class Checkpoints:
    """The checkpoints of one run, of which the last few are kept."""

    def __init__(self, directory: Path, keep: int) -> None:
        self.directory, self._keep = directory, keep

    def save(
        self,
        step: int,
        model: Model,
        tensors: Mapping[str, Tensor],
        recipe: dict[str, Any],
        data: str = "",
        starts: Mapping[str, str] | None = None,
        together: "Together | None" = None,
    ) -> Path:
        """Write one; then, and only then, remove those that are too old.

        If tensors are spread over ranks that write `together`, the main rank saves, and all others write.
        """
        target = self.directory / f"step-{step:08d}"
        try:
            with whole_directory(target) as partial:
                if together is not None:  # first of all: the others wait to hear where
                    together.write(tensors, partial / _SHARDS)
                model.save(partial / "model")
                if together is None:
                    write_safetensors(dict(tensors), partial / _TENSORS)
                about = {"format": 1, "step": step, "recipe": recipe, "data": data, "starts": dict(starts or {})}
                about["files"] = _describe(partial)
                about["sha256"] = seal(about)
                (partial / _ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
                _to_disk(partial)
        except OSError as error:
            kept = self.latest()
            last = f"the last good one is {kept.path}" if kept is not None else "there is none yet"
            raise OSError(
                f"could not save the checkpoint of step {step} in {target}: {error.strerror or error}; {last}"
            ) from error
        self._remove_old()
        return target

    def latest(self) -> Checkpoint | None:
        """The newest that is whole; damaged ones are named in a warning and passed over."""
        for name in reversed(self._steps()):
            try:
                return open_checkpoint(self.directory / name)
            except (ValueError, OSError) as error:
                _log.warning("checkpoint %s is damaged and is passed over: %s", self.directory / name, error)
        return None

    def set_aside_after(self, step: int) -> None:
        """Take later checkpoints out of the way of a run that begins at this step: damaged, or another branch's."""
        for name in self._steps():
            if _step_of(name) > step:
                aside = self.directory / f"aside-{name}"
                shutil.rmtree(aside, ignore_errors=True)
                (self.directory / name).rename(aside)
                _log.warning("%s is later than where the run begins; it is now %s", self.directory / name, aside)

    def _steps(self) -> list[str]:
        """The names of checkpoints, oldest first."""
        if not self.directory.is_dir():
            return []
        return sorted(
            (p.name for p in self.directory.iterdir() if p.is_dir() and _NAME.fullmatch(p.name)), key=_step_of
        )

    def _remove_old(self) -> None:
        for name in self._steps()[: -self._keep]:
            (self.directory / name).rename(self.directory / f".{name}.removed")  # never half of one under its name
        for doomed in self.directory.glob(".step-*.removed"):
            shutil.rmtree(doomed, ignore_errors=True)


def open_checkpoint(path: Path) -> Checkpoint:
    """A checkpoint, after every file has been compared with what was written."""
    about = read_json(path / _ABOUT)
    if about.get("sha256") != seal(about):
        raise ValueError(f"{path / _ABOUT} is not what was written: its sha256 differs")
    try:
        step, recipe = int(about["step"]), dict(about["recipe"])
        data, starts = str(about["data"]), dict(about["starts"])
        files = {name: (int(file["bytes"]), str(file["sha256"])) for name, file in about["files"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(f"{path / _ABOUT} is not the account of a checkpoint") from None
    for name, (expected, sha256) in files.items():
        file = path / name
        if not file.is_file():
            raise ValueError(f"{file} is missing")
        size = file.stat().st_size
        if size != expected:
            raise ValueError(f"{file} has {size:,} bytes instead of {expected:,}")
        if sha256_of(file) != sha256:
            raise ValueError(f"{file} is not what was written: its sha256 differs")
    return Checkpoint(path, step, recipe, data, starts)


def _describe(directory: Path) -> dict[str, dict[str, Any]]:
    """Size and hash of every file."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {
        str(path.relative_to(directory)): {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in files
    }


def _to_disk(directory: Path) -> None:
    """A rename can outlive a power cut that the data do not."""
    for path in [*directory.rglob("*"), directory]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _step_of(name: str) -> int:
    match = _NAME.fullmatch(name)
    assert match is not None
    return int(match[1])
