"""What `pretrain`, `adapt`, `couple` and `distill` share: a recipe, typed overrides, and where the run is kept."""

import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import tyro
from pydantic import ValidationError
from pydantic.dataclasses import dataclass

from multimdm.cli.parsing import parse
from multimdm.training.recipes import explain, find_recipe, read_recipe, read_yaml
from multimdm.training.settings import STRICT
from multimdm.training.shipped import command_of


@dataclass(frozen=True, config=STRICT, kw_only=True)
class RunOptions:
    """What is no part of a recipe."""

    recipe: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RECIPE")]
    out: Path = Path("runs/mine")
    """The run's directory. Default: runs/ and the recipe's name."""
    resume: str = "auto"
    """auto: go on from the newest whole checkpoint of the run's directory, if there is one. never: begin anew, in a
    directory without checkpoints. Or the directory of a checkpoint."""
    dry_run: bool = False
    """Only tell what the run would take on GPUs: parameters, memory per rank and how it is made up, arithmetic. Nothing
    is allocated, and neither weights nor texts are read."""
    ranks: int | None = None
    """With --dry-run: how many ranks there would be. Default: as many as torchrun started, else 1."""
    gpu: str | None = None
    """With --dry-run: also tell whether it fits into a GPU, and about how long it would take: b200, h200, h100, a100,
    a100-40, l40s, rtx4090."""
    assumed_texts: tuple[int, int] | None = None
    """With --dry-run, for data that are not here: the size of their vocabulary and the length of their sequences."""


def run(arguments: Sequence[str], command: str, recipe_class: type, options_class: type) -> None:
    """Parse, build the job and train."""
    options = _parse(arguments, command, recipe_class, options_class)
    main_rank = os.environ.get("RANK", "0") == "0"  # which speaks for all
    if main_rank and not options.dry_run:  # at once: imports, checkpoints and data take their time
        print(f"{command} {options.recipe}: opening data and network; the run is {options.out}", file=sys.stderr)
    try:
        from multimdm.training import building
        from multimdm.training.loop import train
        from multimdm.training.validation import describe_nelbo
    except ModuleNotFoundError as error:
        raise ValueError(f"training needs the package {error.name}: pip install 'multimdm[train]'") from None

    recipe = recipe_class(**{field.name: getattr(options, field.name) for field in fields(recipe_class)})
    if options.dry_run:
        from multimdm.cli.dry_run import dry_run

        ranks = int(os.environ.get("WORLD_SIZE", "1")) if options.ranks is None else options.ranks
        if main_rank:
            print(dry_run(recipe, ranks, options.gpu, options.assumed_texts))
        return
    job = building.JOBS[command](recipe, options.out.name)
    outcome = train(job, options.out, options.resume)
    if not main_rank:
        return
    if outcome.nelbo is not None:
        print(describe_nelbo(outcome.nelbo, job.source.entropy))
    print(f"{outcome.model} holds the model, {options.out / 'metrics.jsonl'} its course")


def _parse(arguments: Sequence[str], command: str, recipe_class: type, options_class: type) -> Any:
    """The recipe of the first argument, with what the other arguments override."""
    if arguments and not arguments[0].startswith("-"):
        path = find_recipe(arguments[0])
        recipe = _read(arguments[0], path, command, recipe_class)
        values = {field.name: getattr(recipe, field.name) for field in fields(recipe_class)}
        default = options_class(recipe=arguments[0], out=Path("runs") / path.stem, **values)
    elif arguments and arguments[0] in ("-h", "--help"):
        default = None
    else:
        raise ValueError(f"give a recipe first: multimdm {command} RECIPE [options]; --help tells more")
    try:
        # Sections that a recipe may leave out are options like others if it has them, and no subcommands.
        config = (tyro.conf.AvoidSubcommands,)
        return parse(options_class, _implied(arguments), f"multimdm {command}", default=default, config=config)
    except ValidationError as error:
        raise ValueError(explain(error, "options")) from None


def _implied(arguments: Sequence[str]) -> list[str]:
    """A path is that of prepared data, whatever the recipe's own data are."""
    given = {argument.partition("=")[0] for argument in arguments}
    return [*arguments, *(["--data.kind", "prepared"] if "--data.path" in given and "--data.kind" not in given else [])]


def _read(name: str, path: Path, command: str, recipe_class: type) -> Any:
    """The recipe of a file; one of another command is told so, rather than which keys it should not have."""
    try:
        return read_recipe(path, recipe_class)
    except ValueError:
        other = command_of(read_yaml(path))
        if other in (None, command):
            raise
        raise ValueError(f"{name}: this is a recipe of {other}: multimdm {other} {name}") from None
