"""Parts of a report as Markdown."""

import html
from collections.abc import Iterable, Iterator, Sequence

from multimdm._inert import inert
from multimdm.report.document import Cell, Heading, Items, Paragraph, Part, Table


def markdown_text(parts: Iterable[Part]) -> str:
    """Headings, paragraphs, tables and lists, with a line between them; empty if there are none."""
    texts = [_text(part) for part in parts]
    return "\n\n".join(texts) + "\n" if texts else ""


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> Iterator[str]:
    """Its lines. A bar within a cell does not end it."""
    yield _row(header)
    yield "|" + "---|" * len(header)
    for row in rows:
        yield _row(row)


def inline(text: str) -> str:
    """A text inside a line: no HTML, no other line, nothing that a terminal obeys."""
    return html.escape(" ".join(inert(text).split()), quote=False)


def _text(part: Part) -> str:
    match part:
        case Heading(text, level):
            return f"{'#' * min(level + 1, 3)} {text}"  # sections and what is in them are of one size here
        case Paragraph(text):
            return text
        case Table():
            return "\n".join(markdown_table(part.header, part.rows))
        case Items(texts):
            return "\n".join(f"- {text}" for text in texts)
        case _:
            raise TypeError(f"Markdown has no {type(part).__name__}")


def _row(cells: Sequence[str | Cell]) -> str:
    lines = (cell.in_line if isinstance(cell, Cell) else cell for cell in cells)
    return f"| {' | '.join(line.replace('|', chr(92) + '|') for line in lines)} |"
