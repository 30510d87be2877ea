"""`multimdm couple`: tie the noise of a masked or multi-mask model to the texts, by a recipe."""

from collections.abc import Sequence

from pydantic.dataclasses import dataclass

from multimdm.cli.recipe_command import RunOptions, run
from multimdm.training.settings import STRICT, CoupleRecipe


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Options(CoupleRecipe, RunOptions):
    """Tie the noise to the texts: each text is matched with its own, so that the first step knows where it is going.

    Example: multimdm couple tales-couple --init runs/tales-multimdm-cont/model

    RECIPE is a file, or the name of one that comes with the package. Every key of it can be overridden by an option.
    The same command again goes on where the run was stopped. Writes checkpoints, metrics.jsonl, TensorBoard's files and
    recipe.yaml to the run's directory, and the model to its folder model, for multimdm.load. Whoever samples from it
    keeps its noise without being asked to.
    """


def main(arguments: Sequence[str]) -> None:
    """Parse the options and train."""
    run(arguments, "couple", CoupleRecipe, Options)
