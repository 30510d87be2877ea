"""Tables as Markdown."""

import html
from collections.abc import Iterable, Iterator, Sequence

from multimdm._inert import inert


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Its lines. A bar within a cell does not end it."""
    yield _row(header)
    yield "|" + "---|" * len(header)
    for row in rows:
        yield _row(row)


def inline(text: str) -> str:
    """A text inside a line: no HTML, no other line, nothing that a terminal obeys."""
    return html.escape(" ".join(inert(text).split()), quote=False)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
