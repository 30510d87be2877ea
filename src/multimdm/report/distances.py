"""How far samples of Tales are from the source, for the terminal, pages and Markdown."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from multimdm.evaluation.bootstrap import Estimate
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


@dataclass(frozen=True)
class _Kind:
    """Two distances that stand together, each with what real stories have by chance."""

    title: str
    note: str
    names: tuple[str, str]
    distances: Callable[[Measurement], tuple[Estimate | None, Estimate | None]]
    chances: Callable[[Measurement], tuple[float | None, float | None]]


TITLE = "Distance from the source"
_KINDS = (
    _Kind(
        TITLE,
        "Total variation between samples and the source, from 0 for equal laws to 1: of tokens, averaged over "
        "positions, and of pairs of neighbouring tokens. A perplexity that was bought with a wrong law shows here.",
        ("tokens", "pairs"),
        lambda m: (m.token_distance, m.pair_distance),
        lambda m: (m.token_chance, m.pair_chance),
    ),
    _Kind(
        "Distance of what stories are about",
        "Total variation between what samples and stories of the source are about, whose law is known exactly: name, "
        "place, thing and event, averaged one by one and two by two. Good sentences about always the same show here.",
        ("one by one", "two by two"),
        lambda m: (m.subject_distance, m.subject_pair_distance),
        lambda m: (m.subject_chance, m.subject_pair_chance),
    ),
)


def chance_text(measurements: Iterable[Measurement]) -> str:
    """What as many real stories have, of both kinds; empty for other data."""
    found = list(measurements)
    return " ".join(text for kind in _KINDS if (text := _chance_text(kind, found)))


def _chance_text(kind: _Kind, measurements: Iterable[Measurement]) -> str:
    levels = {(m.num, *kind.chances(m)) for m in measurements}
    one, two = kind.names
    return " ".join(
        f"{num:,} real stories are {entropy_text(first)} ({one}) and {entropy_text(second)} ({two}) from it by chance "
        "alone."
        for num, first, second in sorted(levels, key=str)
        if first is not None and second is not None
    )


def _chance_of(kind: _Kind, table: Table) -> str:
    """Of the measurements in it."""
    return _chance_text(kind, (cell.measurement for _, cells in table.rows for cell in cells if cell is not None))


def distances_text(table: Table) -> str:
    """The distances of what is in a table of GenPPL, as Markdown; empty for other data than Tales."""
    return "\n".join(_text_of(kind, table) for kind in _KINDS if _chance_of(kind, table))


def _text_of(kind: _Kind, table: Table) -> str:
    said = f"{kind.note} {_chance_of(kind, table)} In this order, each with its {INTERVAL}."
    lines = [f"### {kind.title}, {table.name}", "", said, ""]
    rows = [
        [label, *(_text(kind, cell, K) for K, cell in zip(table.steps, cells, strict=True))]
        for label, cells in table.rows
    ]
    lines += markdown_table(by_steps(table.steps), rows)
    if table.marked:
        lines += ["", UNREACHED_NOTE]
    return "\n".join(lines) + "\n"


def distances_section(table: Table) -> Iterator[Markup]:
    """The same for a page."""
    for kind in _KINDS:
        chance = _chance_of(kind, table)
        if not chance:
            continue
        yield heading(f"{kind.title}, {table.name}", 3)
        yield paragraph(f"{kind.note} {chance} In this order, each with its {INTERVAL}.")
        rows = [
            [label, *(_cell(kind, cell, K) for K, cell in zip(table.steps, cells, strict=True))]
            for label, cells in table.rows
        ]
        yield html_table(f"{kind.title}, {table.name}", by_steps(table.steps), rows)


def _text(kind: _Kind, cell: Cell | None, K: int) -> str:
    if cell is None:
        return NOTHING
    return ", ".join(full_text(one) for one in kind.distances(cell.measurement)) + _notes(cell, K)


def _cell(kind: _Kind, cell: Cell | None, K: int) -> Markup:
    if cell is None:
        return figure_cell(NOTHING)
    both = kind.distances(cell.measurement)
    return figure_cell(", ".join(map(value_text, both)) + _notes(cell, K), ", ".join(map(interval_text, both)))


def _notes(cell: Cell, K: int) -> str:
    """What cannot be compared with the others."""
    return f"{'' if cell.reached else UNREACHED} {calls_text(cell.measurement.nfe, K)}".rstrip()
