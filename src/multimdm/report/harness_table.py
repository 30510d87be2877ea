"""Tab. (llada): tasks and models by tokens per step, with intervals, numbers of items and what speed costs."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from multimdm.evaluation.harness.scores import Scored, under_parallelism
from multimdm.report.document import Cell, Paragraph, Table
from multimdm.report.formats import INTERVAL, NOTHING, interval_text
from multimdm.report.markdown import markdown_text

NOTE = (
    f"Per cent of items answered rightly, {INTERVAL} (Wilson, binomial) in brackets; n items; c network calls each; "
    "t tokens of answers per call. AUP: accuracy under parallelism (d3LLM), the area below accuracy against t, where "
    "accuracy below the best of the task counts less and what falls by more than 5 points does not count."
)


def markdown(scores: Sequence[Scored]) -> str:
    """The table for a page."""
    return markdown_text([_table(scores), Paragraph(NOTE)])


def print_scores(scores: Sequence[Scored]) -> None:
    """The table for a terminal."""
    console, found = Console(highlight=False), _table(scores)
    shown = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1))
    for number, name in enumerate(found.header):
        shown.add_column(name, justify="left" if number < 2 else "right")
    for row in found.rows:
        shown.add_row(*(Text.assemble(c.value, ("\n" + c.below, "dim")) if isinstance(c, Cell) else c for c in row))
    console.print(shown)
    console.print(Text(NOTE, style="dim"))


def _table(scores: Sequence[Scored]) -> Table:
    """Tasks in order, models in order within each; a column for each number of tokens per step."""
    steps = sorted({one.tps for one in scores})
    tasks, models = ([*dict.fromkeys(values)] for values in ([s.task for s in scores], [s.model for s in scores]))
    rows = [
        [task, model, *(_cell(scores, task, model, tps) for tps in steps), _area(scores, task, model)]
        for task in tasks
        for model in models
    ]
    return Table("Scores", ["task", "model", *(f"TPS {tps}" for tps in steps), "AUP"], rows)


def as_data(scores: Sequence[Scored]) -> list[dict[str, Any]]:
    """The results as results.json has them."""
    areas = under_parallelism(scores)
    return [
        {
            "task": one.task,
            "model": one.model,
            "tps": one.tps,
            "share": one.score.share.value,
            "low": one.score.share.low,
            "high": one.score.share.high,
            "right": one.score.right,
            "items": one.score.items,
            "gen_length": one.score.gen_length,
            "network_calls": one.score.calls,
            "tokens_per_forward": one.score.tokens_per_forward,
            "accuracy_under_parallelism": areas.get((one.task, one.model)),
        }
        for one in scores
    ]


def _cell(scores: Sequence[Scored], task: str, model: str, tps: int) -> Cell:
    found = next((s.score for s in scores if (s.task, s.model, s.tps) == (task, model, tps)), None)
    if found is None:
        return Cell(NOTHING)
    interval = interval_text(found.share, per_cent)
    cost = f"n={found.items} c={found.calls} t={found.tokens_per_forward:.2f}"
    return Cell(per_cent(found.share.value), f"{interval} {cost}".strip())


def _area(scores: Sequence[Scored], task: str, model: str) -> str:
    area = under_parallelism(scores).get((task, model))
    return NOTHING if area is None else f"{area:.1f}"


def per_cent(share: float | int) -> str:
    """The share in per cent, to one decimal and without the sign, as in the paper."""
    return f"{100 * share:.1f}"
