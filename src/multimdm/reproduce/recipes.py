"""The recipe of a model at a scale: that of its file, with what the scale sets, its seed and its start."""

from dataclasses import replace
from typing import Any

from multimdm.reproduce.places import Places
from multimdm.reproduce.scale import Run, Scale
from multimdm.training.recipes import find_recipe, parse_recipe, read_yaml
from multimdm.training.settings import TrainingRecipe
from multimdm.training.shipped import RECIPES


def recipe_of(run: Run, scale: Scale, seed: int, places: Places) -> TrainingRecipe:
    """An error names the model and the key."""
    data = read_yaml(find_recipe(run.recipe))
    if scale.settings.data == "tales":
        _set(data, "data.kind", "tales")
    else:
        data["data"] = {**data.get("data", {}), "kind": "prepared", "path": scale.settings.data or str(places.data)}
    if run.start is not None:
        data["init"] = str(places.model(run.start, seed))
    for key, value in run.set.items():
        _set(data, key, value)
    _set(data, "train.seed", seed)
    recipe = parse_recipe(data, RECIPES[run.command], f"scale {scale.name}: {run.name} ({run.recipe})")
    steps, warmup = (scale.longer * number for number in (recipe.train.steps, recipe.train.warmup))
    size = recipe.train.micro_batch if scale.micro_batch is None else scale.micro_batch
    return replace(recipe, train=replace(recipe.train, steps=steps, warmup=warmup, micro_batch=size))


def chain_of_recipes(name: str, scale: Scale, seed: int, places: Places) -> list[TrainingRecipe]:
    """Of all runs that lead to a model."""
    return [recipe_of(run, scale, seed, places) for run in scale.chain(name)]


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    """data["a"]["b"] = value for the key a.b; a null section leaves it out."""
    *sections, last = key.split(".")
    for section in sections:
        if not isinstance(data.get(section), dict):
            data[section] = {}
        data = data[section]
    data[last] = value
