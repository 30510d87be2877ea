"""The recipes that come with the package, in a folder for each command: found by name, with a word on each."""

import re
from pathlib import Path

import multimdm
from multimdm._hints import hint
from multimdm.training.schema import RECIPES

_SENTENCE = re.compile(r"(?<!App)\.(?= [A-Z0-9]|$)")


def recipe_directories() -> tuple[Path, ...]:
    """Where recipes that come with the package are: in an installed package, or in a checkout."""
    package = Path(multimdm.__file__).parent
    return package / "recipes", package.parents[1] / "recipes"


def shipped(*folders: str) -> dict[str, Path]:
    """Name -> file, of what is in these folders of recipes; without a folder, in those of all commands."""
    found: dict[str, Path] = {}
    for directory in recipe_directories():
        for folder in folders or RECIPES:
            found |= {file.stem: file for file in sorted((directory / folder).glob("*.yaml"))}
    return found


def by_command() -> dict[str, dict[str, Path]]:
    """Command -> name -> file."""
    return {command: shipped(command) for command in RECIPES}


def find_recipe(name: str) -> Path:
    """The file of this path, or of this name among the recipes that come with the package."""
    return find_file(name, "recipe", *RECIPES)


def find_file(name: str, what: str, *folders: str) -> Path:
    """The file of this path, or of this name among those that come with the package in these folders of recipes.

    recipes/FOLDER/NAME.yaml stands for the name too, where there is no checkout.
    """
    path = Path(name)
    if path.is_file():
        return path
    known = shipped(*folders)
    places = [Path(), *(Path("recipes", folder) for folder in folders)]
    if path.stem in known and path.parent in places:
        return known[path.stem]  # before directories: a run may lie here that bears the name of its recipe
    if path.is_dir():
        raise ValueError(f"{path} is a directory; give a {what} file, or the name of a {what}")
    near = hint(path.stem, known, "those that come with the package")
    raise ValueError(f"there is no {what} file '{name}'; {near}")


def word_on(path: Path) -> str:
    """The first sentence of the comment that a recipe opens with; commands in it are indented."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("# ") or line.startswith("#  "):
            break
        lines.append(line[2:])
    text = " ".join(lines)
    end = _SENTENCE.search(text)
    return text if end is None else text[: end.end()]
