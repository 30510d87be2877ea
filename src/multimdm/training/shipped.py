"""The recipes that come with the package: which command each is for, and what its file says it is."""

import re
from pathlib import Path
from typing import Any

from multimdm.training.recipes import parse_recipe, read_yaml, shipped
from multimdm.training.settings import AdaptRecipe, CoupleRecipe, DistillRecipe, PretrainRecipe, TrainingRecipe

RECIPES: dict[str, type[TrainingRecipe]] = {
    "pretrain": PretrainRecipe,
    "adapt": AdaptRecipe,
    "couple": CoupleRecipe,
    "distill": DistillRecipe,
}
"""What the training commands take."""
_SENTENCE = re.compile(r"(?<!App)\.(?= [A-Z0-9]|$)")


def command_of(data: dict[str, Any]) -> str | None:
    """The command that these keys and values are a recipe of; None if there is none."""
    for command, kind in RECIPES.items():
        try:
            parse_recipe(data, kind, command)
        except ValueError:
            continue
        return command
    return None


def by_command() -> dict[str, dict[str, Path]]:
    """Command -> name -> file."""
    found: dict[str, dict[str, Path]] = {command: {} for command in RECIPES}
    for name, path in shipped().items():
        command = command_of(read_yaml(path))
        if command is not None:
            found[command][name] = path
    return found


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
