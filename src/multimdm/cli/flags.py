"""The flags of every command, read off its options: what a shell completes."""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from multimdm._field_texts import texts_below_fields
from multimdm.cli.main import RECIPE_COMMANDS, open_command
from multimdm.cli.parsing import Leaf, denied, leaves


@dataclass(frozen=True)
class Flag:
    """An option or a positional argument of a command."""

    name: str
    """The option as it is typed, from -- on; the plain name of a positional argument."""
    values: tuple[str, ...] = ()
    """What may follow, if that is one of a few words."""
    takes: Literal["nothing", "words", "path", "other"] = "other"
    """The kind of thing that follows."""
    help: str = ""

    @property
    def positional(self) -> bool:
        """Whether it has no name on the command line."""
        return not self.name.startswith("-")


def flags_of(command: str) -> list[Flag]:
    """All of a command, with those of sections that a recipe may leave out."""
    by_recipe = command in RECIPE_COMMANDS  # flags have the sections of a recipe in front, and a twin that says no
    options = open_command(command).options
    found = [flag for leaf in leaves(options, flat=not by_recipe) for flag in _flags(leaf, twins=by_recipe)]
    return [*found, Flag("--help", takes="nothing", help="Show this help message and exit.")]


def _flags(leaf: Leaf, twins: bool) -> Iterator[Flag]:
    below = texts_below_fields(leaf.owner).get(leaf.field, "").split(". ")[0].rstrip(".")
    text = below or next((x.help for x in leaf.marks if getattr(x, "help", None)), "")
    if leaf.kind is bool and not leaf.positional:
        yield Flag(f"--{leaf.name}", takes="nothing", help=text)
        if twins and leaf.owner.__dataclass_fields__[leaf.field].default is not MISSING:
            yield Flag(f"--{denied(leaf.name)}", takes="nothing", help=text)
        return
    values = tuple(_words(leaf.kind))
    takes = "words" if values else "path" if _path(leaf.kind) else "other"
    yield Flag(leaf.field if leaf.positional else f"--{leaf.name}", values, takes, text)


def _words(annotation: Any) -> Iterator[str]:
    """The words of a Literal, also inside a union."""
    if get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
    elif not hasattr(annotation, "__metadata__"):
        for part in get_args(annotation):
            yield from _words(part)


def _path(annotation: Any) -> bool:
    return Path in (annotation, *get_args(annotation))
