"""The flags of every command, read off its options: what a shell completes."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from multimdm.cli.main import RECIPE_COMMANDS, open_command
from multimdm.cli.parsing import Leaf, denied, leaves


@dataclass(frozen=True)
class Flag:
    """One of a command."""

    name: str
    """As it is typed, from -- on; of a positional argument its plain name."""
    values: tuple[str, ...] = ()
    """What may follow, if that is one of a few words."""
    takes: Literal["nothing", "words", "path", "other"] = "other"
    """What follows."""
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
    text = _texts(leaf.owner).get(leaf.field) or next((x.help for x in leaf.marks if getattr(x, "help", None)), "")
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


@cache
def _texts(kind: type) -> dict[str, str]:
    """The first sentence of the text below every field, those of parents included."""
    found: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        if not is_dataclass(parent):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(parent))).body[0]
        assert isinstance(body, ast.ClassDef)
        for before, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
                found[before.target.id] = " ".join(_string(after).split()).split(". ")[0].rstrip(".")
    return found


def _string(node: ast.stmt) -> str:
    """The text that a statement is; "" if it is none."""
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
