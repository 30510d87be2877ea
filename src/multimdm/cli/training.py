"""`multimdm pretrain`, `adapt`, `couple` and `distill`: a recipe, typed overrides, and where the run is kept."""

import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import tyro
from pydantic import ValidationError
from pydantic.dataclasses import dataclass

from multimdm._complaints import explain
from multimdm._inert import inert
from multimdm.cli.parsing import parse
from multimdm.training.recipes import command_named, parse_recipe, read_yaml
from multimdm.training.schema import RECIPES, AdaptRecipe, CoupleRecipe, DistillRecipe, PretrainRecipe, TrainingRecipe
from multimdm.training.settings import STRICT
from multimdm.training.shipped import by_command, find_recipe


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
    """With --dry-run: also tell whether it fits into a GPU, and about how long it would take: b200, h200, h100,
    h100-nvl, h100-pcie, a100, a100-40, l40s, rtx4090."""
    assumed_texts: tuple[int, int] | None = None
    """With --dry-run, for data that are not here: the size of their vocabulary and the length of their sequences."""


_EVERY = """
RECIPE is a file, or the name of one that comes with the package. Every key of it can be overridden by an option.
The same command again goes on where the run was stopped. Writes checkpoints, metrics.jsonl, TensorBoard's files and
recipe.yaml to the run's directory, and the model to its folder model, for multimdm.load.
"""
"""What the help of every command says, behind what it does and an example."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class _Pretrain(PretrainRecipe, RunOptions):
    __doc__ = f"""Train a model from random weights, by a recipe.

Example: multimdm pretrain tales-mdlm --train.steps 500 --out runs/mine
{_EVERY}"""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class _Adapt(AdaptRecipe, RunOptions):
    __doc__ = f"""Continue a masked diffusion model with many masks (MultiMDM-cont), by a recipe.

Example: multimdm adapt tales-multimdm-cont --init runs/tales-mdlm/model
{_EVERY}"""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class _Couple(CoupleRecipe, RunOptions):
    __doc__ = f"""Quantile noise: each text is given the numbers by which an autoregressive teacher would draw it.

Cut into masks, they are its noise: one or two calls then know what to write. The network begins as its teacher, or as a
masked model. Whoever samples from it keeps its noise without being asked to.

Example: multimdm couple tales-quantile --init runs/tales-ar/model
{_EVERY}"""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class _Distill(DistillRecipe, RunOptions):
    __doc__ = f"""Make a few-step generator of a trained model: consistency, DUO's DCD or SDTT, by a recipe.

Example: multimdm distill tales-distill-gumbel --init runs/tales-multimdm-cont/model
{_EVERY}"""


OPTIONS: dict[str, Any] = {kind.command: kind for kind in (_Pretrain, _Adapt, _Couple, _Distill)}
"""Command -> its options: the keys of its recipes, and what is no part of a recipe."""


def main(command: str, arguments: Sequence[str]) -> None:
    """Parse, build the job and train."""
    options, recipe_class = parsed(command, arguments), RECIPES[command]
    if not options.dry_run:
        check_start(getattr(options, "init", None))
    main_rank = os.environ.get("RANK", "0") == "0"  # which speaks for all
    if main_rank and not options.dry_run:  # at once: imports, checkpoints and data take their time
        opening = f"{command} {options.recipe}: opening data and network; the run is {options.out}"
        print(inert(opening), file=sys.stderr)
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
    print(inert(f"{outcome.model} holds the model, {options.out / 'metrics.jsonl'} its course"))


def check_start(init: str | None) -> None:
    """A model that is still to be trained is named before anything is imported. Names on the Hub have two parts."""
    if init is None or len(Path(init.partition("@")[0]).parts) < 3 or Path(init).exists():
        return
    run = Path(init).parent.name if Path(init).name == "model" else Path(init).name
    maker = next((command for command, names in by_command().items() if run in names), None)
    remedy = f"multimdm {maker} {run} makes it" if maker else "the recipe's first lines say what makes it"
    raise ValueError(f"init: {init} is not a checkpoint directory; {remedy}, or name another model with --init")


def parsed(command: str, arguments: Sequence[str]) -> Any:
    """The recipe of the first argument, with what the other arguments override."""
    options_class = OPTIONS[command]
    if arguments and not arguments[0].startswith("-"):
        path = find_recipe(arguments[0])
        recipe = _read(arguments[0], path, command)
        values = {field.name: getattr(recipe, field.name) for field in fields(recipe)}
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


def _read(name: str, path: Path, command: str) -> TrainingRecipe:
    """The recipe of a file. If it is one of another command, the error says what to type instead."""
    data = read_yaml(path)
    other = command_named(data, str(path))
    if other not in (None, command):
        raise ValueError(f"{name}: this is a recipe of {other}: multimdm {other} {name}")
    return parse_recipe(data, RECIPES[command], str(path))
