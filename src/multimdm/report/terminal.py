"""The figures of an evaluation as tables in the terminal."""

from itertools import groupby

from rich import box, markup
from rich.console import Console
from rich.table import Table
from rich.text import Text

from multimdm._inert import inert
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.report.beside_gen_ppl import chance_text, weak_judge_text
from multimdm.report.columns import Figure, all_samples, shown_figures
from multimdm.report.formats import INTERVAL, NO_TEXT, UNREACHED_NOTE, full_text, perplexity_text
from multimdm.report.listings import LISTINGS, Listing
from multimdm.report.nelbos import nelbo_line

_WIDTH = 148
"""Characters in a line, where there is no terminal to ask."""


def escape(text: str) -> str:
    """Text as text: neither rich's markup nor the terminal's own."""
    return markup.escape(inert(text))


def print_evaluation(evaluation: Evaluation) -> None:
    """Samples, aligned samples, real text, NELBO, what masks tell, recall, and where the network loses."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    console.print(f"[bold]{escape(evaluation.label)}[/bold]  {escape(evaluation.description)}")
    if evaluation.measurements:
        console.print(_measurements(evaluation))
        judge = "no judge, so no GenPPL" if evaluation.judge is None else f"GenPPL by judge {evaluation.judge}"
        console.print(f"[dim]in brackets: {INTERVAL}; {escape(judge)}[/dim]")
        if chance := chance_text(evaluation.measurements):
            console.print(f"[dim]distance from the source, of tokens and of pairs: {escape(chance)}[/dim]")
    if any(not one.reached for one in evaluation.aligned):
        console.print(f"[dim]{UNREACHED_NOTE}[/dim]")
    real = evaluation.real
    if real is not None:
        said = f", GenPPL {full_text(real.gen_ppl, perplexity_text)}" if real.gen_ppl is not None else ""
        entropies = f"entropy {full_text(real.entropy)}, pooled {full_text(real.pooled_entropy)}"
        console.print(escape(f"real text ({real.name}): {entropies}{said}"))
    elif evaluation.measurements:
        console.print(escape(NO_TEXT))
    if weak := weak_judge_text(evaluation):
        console.print(Text(inert(weak), style="bold red"))
    if evaluation.nelbo is not None:
        console.print(escape(nelbo_line(evaluation.nelbo, evaluation.nats_per_token)))
    for listing in LISTINGS:
        _print_listing(console, listing, evaluation)


def _print_listing(console: Console, listing: Listing, evaluation: Evaluation) -> None:
    """As lines if it has words for them, else as a table with its note."""
    rows = listing.rows(evaluation)
    if listing.line:
        for row in rows:
            console.print(escape(listing.line.format(*row)))
    elif rows:
        table = Table(*(column.title for column in listing.columns), box=box.SIMPLE_HEAD, padding=(0, 1))
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)
        console.print(f"[dim]{escape(listing.note)}[/dim]")


def _measurements(evaluation: Evaluation) -> Table:
    rows = all_samples(evaluation)
    calls = any(m.nfe != m.steps for m, _ in rows)
    figures = shown_figures(m for m, _ in rows)
    # Neighbours of one title share a column.
    groups = {title: list(group) for title, group in groupby(figures, lambda figure: figure.narrow or figure.title)}
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for name in ("K", *(["calls"] if calls else []), "tau", *groups):
        table.add_column(name, justify="right", no_wrap=name.startswith("distinct"))
    for m, kind in rows:
        first = [str(m.steps), *([str(m.nfe)] if calls else [])]
        table.add_row(*first, _cell(f"{m.temperature:.4g}", kind), *(_figures(group, m) for group in groups.values()))
    return table


def _figures(group: list[Figure], m: Measurement) -> Text:
    """One figure over its interval, or several under each other."""
    cells = [(figure.cell(m), figure.brief) for figure in group if not figure.missing(m)]
    if len(group) == 1:
        return Text("").join(_cell(cell.value, "" if brief else cell.below) for cell, brief in cells)
    lines = (Text.assemble(cell.value, ("" if brief else f" {cell.below}", "dim")) for cell, brief in cells)
    return Text("\n").join(lines)


def _cell(value: str, below: str) -> Text:
    return Text.assemble(value, ("\n" + below if below else "", "dim"))
