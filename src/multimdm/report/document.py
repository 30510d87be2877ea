"""What reports are made of, whatever they are written as: a page, Markdown or lines in a terminal.

Parts hold plain text. How a part looks is the business of `page.py` and its templates, `markdown.py` and `terminal.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Heading:
    """A heading; those of the second level can be linked to."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Plain words. A lead opens a page; a warning must not be overlooked."""

    text: str
    kind: Literal["soft", "lead", "warning"] = "soft"


@dataclass(frozen=True)
class Cell:
    """A number with its interval below it in small print."""

    value: str
    below: str = ""
    strong: bool = False
    line: str = ""
    """What it says where there is one line only; the value and what is below it unless given."""

    @property
    def in_line(self) -> str:
        """The cell in one line, without emphasis."""
        return self.line or f"{self.value} {self.below}".rstrip()


@dataclass(frozen=True)
class Table:
    """The first column says what a row is."""

    name: str
    header: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    kind: Literal["", "words", "dense", "ratios", "settings"] = ""


@dataclass(frozen=True)
class Items:
    """A list of lines."""

    texts: Sequence[str]


@dataclass(frozen=True)
class Pictures:
    """Side by side: data: address and what it shows. Wide ones take a row each and scroll on a phone."""

    shown: Sequence[tuple[str, str]]
    wide: bool = False


@dataclass(frozen=True)
class Quotations:
    """Texts to be read."""

    texts: Sequence[str]


@dataclass(frozen=True)
class Contents:
    """Links to the sections of these titles."""

    titles: Sequence[str]


@dataclass(frozen=True)
class Words:
    """A piece of text; what is wrong is marked."""

    text: str
    wrong: bool = False


@dataclass(frozen=True)
class SideBySide:
    """Texts of one author beside each other, each under a few words."""

    title: str
    says: str
    texts: Sequence[tuple[str, Sequence[Words]]]


@dataclass(frozen=True)
class States:
    """States of a text under each other, as words with the numbers of their kinds, and what the kinds mean."""

    legend: Sequence[tuple[int, str]]
    rows: Sequence[tuple[str, Sequence[tuple[int, str]]]]


@dataclass(frozen=True)
class Folded:
    """A section that opens when it is asked for."""

    title: str
    parts: Sequence["Part"]


Part = Heading | Paragraph | Table | Items | Pictures | Quotations | Contents | SideBySide | States | Folded


def section(title: str, note: str, table: Table, notes: Iterable[str] = (), level: int = 3) -> list[Part]:
    """A table under its title, with how to read it; nothing if the table is empty."""
    if not table.rows:
        return []
    return [Heading(title, level), *([Paragraph(note)] if note else []), table, *map(Paragraph, notes)]
