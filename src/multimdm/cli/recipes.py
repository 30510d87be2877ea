"""`multimdm recipes`: those that come with the package."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from multimdm.cli.parsing import parse


@dataclass(frozen=True)
class Options:
    """List the recipes that come with the package, by the command that each is for, with a word on it.

    Example: multimdm recipes pretrain

    A recipe's file says more, and is a good start for one of your own: --show prints it.
    """

    command: Annotated[Literal["all", "pretrain", "adapt", "couple", "distill"], tyro.conf.Positional] = "all"
    """Only those of this command."""
    show: str | None = None
    """Print the file of the recipe of this name instead."""


def main(arguments: Sequence[str]) -> None:
    """Parse the options and print."""
    options = parse(Options, arguments, "multimdm recipes")
    from multimdm.training.shipped import by_command, find_recipe, word_on

    if options.show is not None:
        print(find_recipe(options.show).read_text(encoding="utf-8"), end="")
        return
    found = by_command()
    width = max(len(name) for recipes in found.values() for name in recipes)
    for command, recipes in found.items():
        if options.command in ("all", command):
            print(f"multimdm {command} RECIPE")
            for name, path in recipes.items():
                print(f"  {name:<{width}}  {word_on(path)}")
            print()
    print("multimdm recipes --show RECIPE prints its file; every key in it can be overridden by an option")
