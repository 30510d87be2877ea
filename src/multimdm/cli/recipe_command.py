"""What `pretrain` and `adapt` share: a recipe, typed overrides, and where the run is kept."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import tyro
from pydantic import ValidationError

from multimdm.training.recipes import explain, find_recipe, read_recipe


def options_from(arguments: Sequence[str], command: str, recipe_class: type, options_class: type) -> Any:
    """The recipe of the first argument, with what the other arguments override."""
    if arguments and not arguments[0].startswith("-"):
        path = find_recipe(arguments[0])
        recipe = read_recipe(path, recipe_class)
        values = {field.name: getattr(recipe, field.name) for field in fields(recipe_class)}
        default = options_class(recipe=arguments[0], out=Path("runs") / path.stem, **values)
    elif arguments and arguments[0] in ("-h", "--help"):
        default = None
    else:
        raise ValueError(
            f"give a recipe first: multimdm {command} RECIPE [options]; multimdm {command} --help tells more"
        )
    try:
        return tyro.cli(options_class, args=arguments, prog=f"multimdm {command}", default=default)
    except ValidationError as error:
        raise ValueError(explain(error, "options")) from None


def run(options: Any, recipe_class: type, build: Callable[[Any, str], Any]) -> None:
    """Build the job and train."""
    from multimdm.training.loop import describe_nelbo, train

    recipe = recipe_class(**{field.name: getattr(options, field.name) for field in fields(recipe_class)})
    job = build(recipe, options.out.name)
    outcome = train(job, options.out, options.resume)
    if outcome.nelbo is not None:
        print(describe_nelbo(outcome.nelbo, job.source.entropy))
    print(
        f"{outcome.model} holds the model; {options.out / 'metrics.jsonl'} and {options.out / 'tensorboard'} its course"
    )
