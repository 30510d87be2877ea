"""How far samples of Tales are from the source, for the terminal, pages and Markdown."""

from collections.abc import Iterable, Iterator

from multimdm.evaluation.measurement import Measurement
from multimdm.report.formats import (
    INTERVAL,
    NOTHING,
    UNREACHED,
    UNREACHED_NOTE,
    by_steps,
    calls_text,
    entropy_text,
    full_text,
    interval_text,
    value_text,
)
from multimdm.report.markdown import markdown_table
from multimdm.report.page import Markup, figure_cell, heading, paragraph
from multimdm.report.page import table as html_table
from multimdm.report.tables import Cell, Table

TITLE = "Distance from the source"
NOTE = (
    "Total variation between samples and the source, from 0 for equal laws to 1: of tokens, averaged over positions, "
    "and of pairs of neighbouring tokens. A perplexity that was bought with a wrong law shows here."
)


def chance_text(measurements: Iterable[Measurement]) -> str:
    """What as many real stories have; empty for other data."""
    levels = {(m.num, m.token_chance, m.pair_chance) for m in measurements}
    return " ".join(
        f"{num:,} real stories are {entropy_text(tokens)} (tokens) and {entropy_text(pairs)} (pairs) from it by chance "
        "alone."
        for num, tokens, pairs in sorted(levels, key=str)
        if tokens is not None and pairs is not None
    )


def _chance_of(table: Table) -> str:
    """Of the measurements in it."""
    return chance_text(cell.measurement for _, cells in table.rows for cell in cells if cell is not None)


def distances_text(table: Table) -> str:
    """The distances of what is in a table of GenPPL, as Markdown; empty for other data than Tales."""
    chance = _chance_of(table)
    if not chance:
        return ""
    lines = [f"### {TITLE}, {table.name}", "", f"{NOTE} {chance} In this order, each with its {INTERVAL}.", ""]
    rows = [
        [label, *(_text(cell, K) for K, cell in zip(table.steps, cells, strict=True))] for label, cells in table.rows
    ]
    lines += markdown_table(by_steps(table.steps), rows)
    if table.marked:
        lines += ["", UNREACHED_NOTE]
    return "\n".join(lines) + "\n"


def distances_section(table: Table) -> Iterator[Markup]:
    """The same for a page."""
    chance = _chance_of(table)
    if not chance:
        return
    yield heading(f"{TITLE}, {table.name}", 3)
    yield paragraph(f"{NOTE} {chance} In this order, each with its {INTERVAL}.")
    rows = [
        [label, *(_cell(cell, K) for K, cell in zip(table.steps, cells, strict=True))] for label, cells in table.rows
    ]
    yield html_table(f"{TITLE}, {table.name}", by_steps(table.steps), rows)


def _text(cell: Cell | None, K: int) -> str:
    if cell is None:
        return NOTHING
    both = (cell.measurement.token_distance, cell.measurement.pair_distance)
    return ", ".join(full_text(one) for one in both) + _notes(cell, K)


def _cell(cell: Cell | None, K: int) -> Markup:
    if cell is None:
        return figure_cell(NOTHING)
    both = (cell.measurement.token_distance, cell.measurement.pair_distance)
    return figure_cell(", ".join(map(value_text, both)) + _notes(cell, K), ", ".join(map(interval_text, both)))


def _notes(cell: Cell, K: int) -> str:
    """What cannot be compared with the others."""
    return f"{'' if cell.reached else UNREACHED} {calls_text(cell.measurement.nfe, K)}".rstrip()
