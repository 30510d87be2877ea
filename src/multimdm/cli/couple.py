"""`multimdm couple`: teach a network to read quantile noise, by a recipe."""

from collections.abc import Sequence

from pydantic.dataclasses import dataclass

from multimdm.cli.recipe_command import RunOptions, run
from multimdm.training.settings import STRICT, CoupleRecipe


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Options(CoupleRecipe, RunOptions):
    """Quantile noise: each text is given the numbers by which an autoregressive teacher would draw it, cut into masks.

    One or two calls then know what to write. The network begins as its teacher, or as a masked model.

    Example: multimdm couple tales-quantile --init runs/tales-ar/model

    RECIPE is a file, or the name of one that comes with the package. Every key of it can be overridden by an option.
    The same command again goes on where the run was stopped. Writes checkpoints, metrics.jsonl, TensorBoard's files and
    recipe.yaml to the run's directory, and the model to its folder model, for multimdm.load. Whoever samples from it
    keeps its noise without being asked to.
    """


def main(arguments: Sequence[str]) -> None:
    """Parse the options and train."""
    run(arguments, "couple", CoupleRecipe, Options)
