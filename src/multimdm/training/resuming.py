"""Which checkpoint a run goes on from, and whether it is the same run."""

from pathlib import Path
from typing import Any

from multimdm.pipeline.files import fingerprint_of_checkpoint
from multimdm.pipeline.hub import local_directory
from multimdm.training.checkpoints import Checkpoint, Checkpoints, open_checkpoint
from multimdm.training.recipes import dump_recipe, flat, parse_recipe
from multimdm.training.schema import TrainingRecipe

Resume = str
"""`auto`: the newest whole checkpoint of the run's directory, if there is one. `never`: begin anew, where there are no
checkpoints. Else the directory of a checkpoint."""

_STARTS = ("init", "teacher", "quantile.teacher")
"""Keys that name checkpoints. Where one lies does not matter, as long as it is the same."""
HOW = frozenset(["micro_batch", "precision", "strategy", "compile", "recompute", "anomaly_checks"])
"""Settings of `train` that say how the work is done, not what is learnt: sums are the same but for their rounding. With
dropout, which positions are dropped is drawn anew for every part of a batch, so that `micro_batch` changes these draws,
and not their law."""


def find_checkpoint(checkpoints: Checkpoints, out: Path, resume: Resume) -> Checkpoint | None:
    """Where to begin; None at the beginning."""
    if resume == "auto":
        return checkpoints.latest()
    if resume == "never":
        if checkpoints.directory.is_dir() and any(checkpoints.directory.iterdir()):
            raise ValueError(
                f"{out} holds the checkpoints of an earlier run; go on with --resume auto, choose another --out, or "
                "remove the directory"
            )
        return None
    return open_checkpoint(Path(resume))


def check_same_run(found: Checkpoint, asked: TrainingRecipe, data: str) -> None:
    """Refuse to go on with another recipe or other data, but for what does not change what is learnt."""
    # A checkpoint of an older version may lack keys: their defaults are what it was trained with.
    found_recipe = dump_recipe(parse_recipe(found.recipe, type(asked), str(found.path)))
    recipe = dump_recipe(asked)
    old, new = flat(_essential(found_recipe, recipe)), flat(_essential(recipe, recipe))
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key) and not _moved(found, key, new.get(key)):
            raise ValueError(
                f"{found.path} was made with {key} = {old.get(key)!r}, not {new.get(key)!r}; train the changed recipe "
                "in another directory (--out), or resume with the old value"
            )
    if found.data != data:
        raise ValueError(
            f"{found.path} was made with other data than are now at {recipe['data']['path'] or recipe['data']['kind']} "
            f"({found.data[:12]} instead of {data[:12]}); train on them in another directory (--out)"
        )


def starts_of(recipe: TrainingRecipe) -> dict[str, str]:
    """Key -> fingerprint of the checkpoint that it names, for those that are directories here."""
    settings = flat(dump_recipe(recipe))
    return {key: found for key in _STARTS if (found := _fingerprint(settings.get(key))) is not None}


def _moved(found: Checkpoint, key: str, place: Any) -> bool:
    """Whether what a key names is what it was, in another place."""
    return key in found.starts and _fingerprint(place) == found.starts[key]


def _fingerprint(place: Any) -> str | None:
    """The fingerprint of a checkpoint that is here; names of what is elsewhere stand for themselves."""
    if not isinstance(place, str) or not Path(place).is_dir():
        return None
    return fingerprint_of_checkpoint(local_directory(place))


def _essential(recipe: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """The recipe without what may change. More steps may be asked for if nothing is measured against their number."""
    train = {key: value for key, value in recipe["train"].items() if key not in HOW}
    measured = (
        asked["train"]["decay"] != "constant"
        or any(asked.get(section) for section in ("relaxation", "consistency", "sdtt"))
        or asked.get("identification", {}).get("end", 0) > 0
    )
    if not measured:
        train.pop("steps")
    data = {key: value for key, value in recipe["data"].items() if key != "path"}  # its contents are compared
    return {**{key: value for key, value in recipe.items() if key != "log"}, "data": data, "train": train}
