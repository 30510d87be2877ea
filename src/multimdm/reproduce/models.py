"""A model at a scale: where it is kept, and the recipe that makes it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from multimdm.reproduce.scale import Run, Scale
from multimdm.training.recipes import dump_recipe, flat, parse_recipe, read_yaml, set_key
from multimdm.training.resuming import HOW
from multimdm.training.schema import RECIPES, TrainingRecipe
from multimdm.training.shipped import find_recipe


@dataclass(frozen=True)
class Folders:
    """Where everything of one scale is kept. Specifications share models and measurements: a model has one place."""

    root: Path
    flat: bool = False
    """Whether there is one seed and one specification only, which need no folders of their own."""

    @property
    def data(self) -> Path:
        """What was prepared from the user's text."""
        return self.root / "data"

    @property
    def points(self) -> Path:
        """The directory of measurements."""
        return self.root / "points"

    @property
    def locks(self) -> Path:
        """One file for each stage, held by the process that works on it."""
        return self.root / "locks"

    def run(self, name: str, seed: int) -> Path:
        """The directory of a model in training."""
        return self.root / name if self.flat else self.root / f"seed-{seed}" / name

    def model(self, name: str, seed: int) -> Path:
        """The directory of a trained model."""
        return self.run(name, seed) / "model"

    def results(self, spec: str) -> Path:
        """Tables, figures and the report of a specification."""
        return self.root if self.flat else self.root / "results" / spec


def recipe_of(run: Run, scale: Scale, seed: int, folders: Folders) -> TrainingRecipe:
    """The recipe of its file, with what the scale sets, its seed and its start. An error names the model and key."""
    data = read_yaml(find_recipe(run.recipe))
    if scale.settings.data == "tales":
        set_key(data, "data.kind", "tales")
    else:
        data["data"] = {**data.get("data", {}), "kind": "prepared", "path": scale.settings.data or str(folders.data)}
    if run.start is not None:
        data["init"] = str(folders.model(run.start, seed))
    for key, value in run.set.items():
        set_key(data, key, value)
    set_key(data, "train.seed", seed)
    recipe = parse_recipe(data, RECIPES[run.command], f"scale {scale.name}: {run.name} ({run.recipe})")
    steps, warmup = (scale.longer * number for number in (recipe.train.steps, recipe.train.warmup))
    return replace(recipe, train=scale.execution.of(replace(recipe.train, steps=steps, warmup=warmup)))


def shaping_settings(recipe: TrainingRecipe) -> dict[str, Any]:
    """What shapes the result, by key: neither where files lie, nor how the work is done, nor what is logged."""
    return without_circumstances({key: value for key, value in flat(dump_recipe(recipe)).items() if value is not None})


def without_circumstances(settings: dict[str, Any]) -> dict[str, Any]:
    """The keys of a recipe that shape the result."""
    left_out = ("init", "data.path", *(f"train.{name}" for name in HOW))
    return {key: value for key, value in settings.items() if key not in left_out and not key.startswith("log.")}
