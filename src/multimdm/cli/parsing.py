"""How every command reads its options: a list may be given in several pieces, and nothing is dropped in silence."""

import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar

import tyro

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Flag:
    """An option by the type of its field."""

    name: str
    """Without dashes before it; sections of a recipe are separated by dots."""
    values: int | None
    """How many words belong to it: 0 for a switch, None for a list, which takes all up to the next option."""
    on: bool = True
    """Whether a switch turns something on; false for --no-NAME."""
    again: bool = False
    """Whether it takes one value each time that it is given."""


def parse(
    options: type[Parsed], arguments: Sequence[str], prog: str, config: Sequence[Any] = (), **named: Any
) -> Parsed:
    """The options as the command line gives them; `named` is for tyro.

    By itself the parser keeps the last of several `--mix A --mix B`, and says nothing about the others.
    """
    flags = flags_of(options, flat=tyro.conf.OmitArgPrefixes in config)
    return tyro.cli(options, args=gathered(arguments, flags), prog=prog, config=tuple(config), **named)


def flags_of(options: type, flat: bool = False) -> dict[str, Flag]:
    """Option as it is written -> what it takes; `flat` if sections are no part of the names."""
    return {_written(spelling): flag for spelling, flag in _walk(options, flat)}


def gathered(arguments: Sequence[str], flags: Mapping[str, Flag]) -> list[str]:
    """The same arguments, with every list in one piece, where its last piece was.

    An option that holds one value and is given two is refused: nobody can tell which was meant.
    """
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    pieces = _pieces(words[:end], flags)
    given: dict[str, list[_Piece]] = {}
    for piece in pieces:
        if piece.flag is not None:
            given.setdefault(piece.flag.name, []).append(piece)
    kept: list[str] = []
    for piece in pieces:
        same = [] if piece.flag is None else given[piece.flag.name]
        if piece.flag is None or len(same) == 1 or piece.flag.again:
            kept += piece.words
        elif piece.flag.values is not None:
            _check_equal(same)
            kept += piece.words
        elif piece is same[-1]:
            kept += [f"--{piece.flag.name}", *(value for one in same for value in one.values)]
    return [*kept, *words[end:]]


@dataclass(frozen=True)
class _Piece:
    """An option with the words that follow it up to the next; without an option, what stands before the first."""

    flag: Flag | None
    words: list[str]

    @property
    def values(self) -> list[str]:
        """What the option was given, and what may be positional behind it."""
        _, sign, attached = self.words[0].partition("=")
        return [*([attached] if sign else []), *self.words[1:]]


def _pieces(words: Sequence[str], flags: Mapping[str, Flag]) -> list[_Piece]:
    pieces = [_Piece(None, [])]
    for word in words:
        flag = flags.get(_written(word.partition("=")[0]))
        if flag is not None:
            pieces.append(_Piece(flag, []))
        pieces[-1].words.append(word)
    return pieces


def _check_equal(pieces: Sequence[_Piece]) -> None:
    """Refuse several values where one is held."""
    meant: list[str] = []
    for piece in pieces:
        assert piece.flag is not None
        values = piece.values[: piece.flag.values] if piece.flag.values else [str(piece.flag.on)]
        if " ".join(values) not in meant:
            meant.append(" ".join(values))
        if len(meant) > 1:
            raise ValueError(f"--{piece.flag.name} was given {meant[0]} and {meant[1]}; leave one of them out")


def _written(word: str) -> str:
    """Dashes and underscores are the same."""
    return word.replace("_", "-")


@dataclass(frozen=True)
class Leaf:
    """A field of options, or of a section of them, that holds values and no further fields."""

    owner: type
    """The class that has the field."""
    field: str
    name: str
    """The option as it is typed, without dashes: its sections in front, unless they are left out."""
    kind: Any
    """The type, without what it is annotated by."""
    marks: tuple[Any, ...]
    """What it is annotated by."""

    @property
    def positional(self) -> bool:
        """Whether it has no name on the command line."""
        return tyro.conf.Positional in self.marks


def leaves(options: type, flat: bool, prefix: str = "") -> Iterator[Leaf]:
    """All of them in order; `flat` if sections are no part of the names."""
    hints = typing.get_type_hints(options, include_extras=True)
    for field in fields(options):
        kind, marks = hints[field.name], ()
        if typing.get_origin(kind) is typing.Annotated:
            kind, *marks = typing.get_args(kind)
        sections = [member for member in _members(kind) if is_dataclass(member)]
        bare = flat or tyro.conf.OmitArgPrefixes in marks
        name = f"{prefix}{field.name}".replace("_", "-")
        for section in sections:
            yield from leaves(typing.cast(type, section), flat, "" if bare else f"{name}.")
        if not sections:
            yield Leaf(options, field.name, name, kind, tuple(marks))


def denied(name: str) -> str:
    """The name of the option that turns a switch off."""
    before, dot, last = name.rpartition(".")
    return f"{before}{dot}no-{last}"


def _walk(options: type, flat: bool) -> Iterator[tuple[str, Flag]]:
    for leaf in leaves(options, flat):
        if leaf.positional:
            continue
        again = tyro.conf.UseAppendAction in leaf.marks
        flag = Flag(leaf.name, 1 if again else _values(_members(leaf.kind)), again=again)
        yield f"--{leaf.name}", flag
        if flag.values == 0:
            yield f"--{denied(leaf.name)}", Flag(leaf.name, 0, on=False)


def _members(kind: Any) -> tuple[Any, ...]:
    """The members of a union; else the type itself."""
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, UnionType) else (kind,)


def _values(members: Sequence[Any]) -> int | None:
    """How many words belong to an option of this type; for a union, as many as its longest member takes."""
    if tuple(members) == (bool,):
        return 0
    arguments = [typing.get_args(member) for member in members if typing.get_origin(member) in (tuple, list)]
    if any(len(one) == 1 or Ellipsis in one for one in arguments):
        return None
    return max(map(len, arguments), default=1)
