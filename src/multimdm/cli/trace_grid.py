"""The states of a sequence, step by step, as a grid in the terminal (as Fig. 1 of the paper draws them)."""

from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from multimdm._inert import inert
from multimdm.report.signs import SIGNS, cut, legend, with_sign
from multimdm.samplers.trace import CLEAN, DESIGNATED, OTHER, Trace

if TYPE_CHECKING:
    from multimdm.pipeline import Model

_STYLES = {CLEAN: "green", DESIGNATED: "bold yellow", OTHER: "magenta"}
_WIDEST = 12
"""Longer tokens are cut."""


def print_trace(model: "Model", trace: Trace, number: int, console: Console) -> None:
    """One row per step and one column per position, in as many tables as the width of the terminal asks for."""
    cells = _cells(model, trace, number)
    labels = [f"t={time:.3g}" for time in trace.times[:, number].tolist()]
    room = console.width - max(map(len, labels))
    start = 0
    while start < len(cells):
        end, used = start, 0
        while end < len(cells) and (end == start or used + _width(cells[end]) <= room):
            used += _width(cells[end])
            end += 1
        console.print(_table(labels, cells[start:end]))
        start = end
    console.print(_legend(model))


def _cells(model: "Model", trace: Trace, number: int) -> list[list[Text]]:
    """The columns: what each position shows at every step."""
    states = trace.states[:, number]
    process = model.process
    V = model.network.config.vocab_size
    kinds = trace.kinds(process)[:, number] if process is not None else (states >= V) * OTHER
    several = process is not None and process.num_masks > 1
    name = partial(_short_name, model)

    def cell(state: int, kind: int) -> Text:
        if state >= V:
            return Text(SIGNS[kind] + (str(state - V) if several else ""), _STYLES[kind])
        return Text(SIGNS[kind] + name(state), _STYLES[kind])

    return [
        [cell(state, kind) for state, kind in zip(column, what, strict=True)]
        for column, what in zip(states.T.tolist(), kinds.T.tolist(), strict=True)
    ]


def _short_name(model: "Model", token: int) -> str:
    return cut(inert(model.token_name(token)).replace("\n", "\\n"), _WIDEST)


def _width(column: list[Text]) -> int:
    return max(cell.cell_len for cell in column) + 1


def _table(labels: list[str], columns: list[list[Text]]) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(len(columns) + 1):
        table.add_column(no_wrap=True)
    for row, label in enumerate(labels):
        table.add_row(Text(label, "dim"), *(column[row] for column in columns))
    return table


def _legend(model: "Model") -> Text:
    """A line that says what the signs mean."""
    if model.process is None:
        entries = [(CLEAN, "token"), (OTHER, "not made yet")]
    else:
        entries = legend(masks=model.process.num_masks > 0, several=model.process.num_masks > 1)
    return Text("  ").join(Text(with_sign(kind, text), _STYLES[kind]) for kind, text in entries)
