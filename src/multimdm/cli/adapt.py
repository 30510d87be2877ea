"""`multimdm adapt`: continue a masked diffusion model with many masks (MultiMDM-cont), by a recipe."""

from collections.abc import Sequence

from pydantic.dataclasses import dataclass

from multimdm.cli.recipe_command import RunOptions, run
from multimdm.training.settings import STRICT, AdaptRecipe


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Options(AdaptRecipe, RunOptions):
    """Continue a masked diffusion model with many masks (MultiMDM-cont), by a recipe.

    Example: multimdm adapt tales-multimdm-cont --init runs/tales-mdlm/model

    RECIPE is a file, or the name of one that comes with the package. Every key of it can be overridden by an option.
    The same command again goes on where the run was stopped. Writes checkpoints, metrics.jsonl, TensorBoard's files and
    recipe.yaml to the run's directory, and the model to its folder model, for multimdm.load.
    """


def main(arguments: Sequence[str]) -> None:
    """Parse the options and train."""
    run(arguments, "adapt", AdaptRecipe, Options)
