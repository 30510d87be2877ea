"""`multimdm distill`: make a few-step generator of a trained model, by a recipe."""

from collections.abc import Sequence

from pydantic.dataclasses import dataclass

from multimdm.cli.recipe_command import RunOptions, run
from multimdm.training.settings import STRICT, DistillRecipe


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Options(DistillRecipe, RunOptions):
    """Make a few-step generator of a trained model: consistency, DUO's DCD or SDTT, by a recipe.

    Example: multimdm distill tales-distill-gumbel --init runs/tales-multimdm-cont/model

    RECIPE is a file, or the name of one that comes with the package. Every key of it can be overridden by an option.
    The same command again goes on where the run was stopped. Writes checkpoints, metrics.jsonl, TensorBoard's files and
    recipe.yaml to the run's directory, and the model to its folder model, for multimdm.load.
    """


def main(arguments: Sequence[str]) -> None:
    """Parse the options and train."""
    run(arguments, "distill", DistillRecipe, Options)
