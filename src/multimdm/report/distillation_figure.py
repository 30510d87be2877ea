"""The loss of distillation over its rounds."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from matplotlib.figure import Figure

from multimdm.report.pareto_figure import COLOURS
from multimdm.report.style import GREY, apply_style
from multimdm.training.records import read_records


def distillation_figure(runs: Mapping[str, Path]) -> Figure:
    """One line per run; steps grow from round to round, and the loss with them."""
    apply_style()
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for number, (label, run) in enumerate(runs.items()):
        records = read_records(run, "train")
        axes.plot([r["step"] for r in records], [r["loss"] for r in records], color=COLOURS[number], label=label)
        if number == 0:
            _mark_rounds(axes, records)
    axes.set_xlabel("steps")
    axes.set_ylabel("loss, nats per token")
    axes.set_title("student against teacher; dotted: the step size delta doubles", color=GREY)
    axes.legend(fontsize=8)
    return figure


def _mark_rounds(axes, records) -> None:
    """A line where the step size changes."""
    for before, after in pairwise(records):
        if after["delta"] != before["delta"]:
            axes.axvline(before["step"], color=GREY, linewidth=0.8, linestyle=(0, (1, 2)))
