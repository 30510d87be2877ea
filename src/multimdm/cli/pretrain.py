"""`multimdm pretrain`: train a model from random weights, by a recipe."""

from collections.abc import Sequence

from pydantic.dataclasses import dataclass

from multimdm.cli.recipe_command import RunOptions, run
from multimdm.training.settings import STRICT, PretrainRecipe


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Options(PretrainRecipe, RunOptions):
    """Train a model from random weights, by a recipe.

    Example: multimdm pretrain tales-mdlm --train.steps 500 --out runs/mine

    RECIPE is a file, or the name of one that comes with the package. Every key of it can be overridden by an option.
    The same command again goes on where the run was stopped. Writes checkpoints, metrics.jsonl, TensorBoard's files and
    recipe.yaml to the run's directory, and the model to its folder model, for multimdm.load.
    """


def main(arguments: Sequence[str]) -> None:
    """Parse the options and train."""
    run(arguments, "pretrain", PretrainRecipe, Options)
