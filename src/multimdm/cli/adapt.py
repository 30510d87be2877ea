"""`multimdm adapt`: continue a masked diffusion model with many masks (MultiMDM-cont), by a recipe."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro
from pydantic.dataclasses import dataclass

from multimdm.cli.recipe_command import options_from, run
from multimdm.training.settings import STRICT, AdaptRecipe


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Options(AdaptRecipe):
    """Continue a masked diffusion model with many masks (MultiMDM-cont), by a recipe.

    Example: multimdm adapt tales-multimdm-cont --init runs/tales-mdlm/model

    RECIPE is a file, or the name of one that comes with the package. Every key of it can be overridden by an option.
    The same command again goes on where the run was stopped. Writes checkpoints, metrics.jsonl, TensorBoard's files and
    recipe.yaml to the run's directory, and the model to its folder model, for multimdm.load.
    """

    recipe: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RECIPE")]
    out: Path = Path("runs/mine")
    """The run's directory. Default: runs/ and the recipe's name."""
    resume: str = "auto"
    """auto: go on from the newest whole checkpoint of the run's directory, if there is one. never: begin anew, in a
    directory without checkpoints. Or the directory of a checkpoint."""


def main(arguments: Sequence[str]) -> None:
    """Parse the options and train."""
    options = options_from(arguments, "adapt", AdaptRecipe, Options)
    from multimdm.training.building import adapt_job

    run(options, AdaptRecipe, adapt_job)
