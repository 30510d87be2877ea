"""The recipe of a model at a scale: that of its file, with what the scale sets, its seed and its start."""

from dataclasses import replace

from multimdm.reproduce.places import Places
from multimdm.reproduce.scale import Run, Scale
from multimdm.training.recipes import parse_recipe, read_yaml, set_key
from multimdm.training.schema import RECIPES, TrainingRecipe
from multimdm.training.shipped import find_recipe


def recipe_of(run: Run, scale: Scale, seed: int, places: Places) -> TrainingRecipe:
    """An error names the model and the key."""
    data = read_yaml(find_recipe(run.recipe))
    if scale.settings.data == "tales":
        set_key(data, "data.kind", "tales")
    else:
        data["data"] = {**data.get("data", {}), "kind": "prepared", "path": scale.settings.data or str(places.data)}
    if run.start is not None:
        data["init"] = str(places.model(run.start, seed))
    for key, value in run.set.items():
        set_key(data, key, value)
    set_key(data, "train.seed", seed)
    recipe = parse_recipe(data, RECIPES[run.command], f"scale {scale.name}: {run.name} ({run.recipe})")
    steps, warmup = (scale.longer * number for number in (recipe.train.steps, recipe.train.warmup))
    return replace(recipe, train=scale.execution.of(replace(recipe.train, steps=steps, warmup=warmup)))


def chain_of_recipes(name: str, scale: Scale, seed: int, places: Places) -> list[TrainingRecipe]:
    """Of all runs that lead to a model."""
    return [recipe_of(run, scale, seed, places) for run in scale.chain(name)]
