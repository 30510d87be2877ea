"""Losses in the course of training and of distillation: one curve per run."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from multimdm.report.pareto_figure import COLOURS
from multimdm.report.style import GREY, apply_style
from multimdm.training.records import read_records, validation_loss


def training_figure(runs: Sequence[Path], begins: Mapping[Path, int] | None = None) -> Figure:
    """With the exact entropy as a line. Thin: training loss, both terms without the weights of a curriculum; dots:
    validation NELBO, with its error.

    Every curve begins at zero, or where `begins` says: at the end of the run that it continues.
    """
    apply_style()
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    entropies: set[float] = set()
    for number, run in enumerate(runs):
        colour = COLOURS[number % len(COLOURS)]
        train, valid = read_records(run, "train"), read_records(run, "valid")
        before = (begins or {}).get(run, 0)
        axes.plot(
            [before + r["step"] for r in train], [_total(r) for r in train], color=colour, linewidth=0.7, alpha=0.55
        )
        axes.errorbar(
            [before + r["step"] for r in valid],
            [validation_loss(r) for r in valid],
            [r["standard_error"] for r in valid],
            color=colour,
            marker="o",
            markersize=4,
            linewidth=1.5,
            label=_label(run, valid),
        )
        entropies |= {r["entropy"] for r in valid if "entropy" in r}
    for entropy in sorted(entropies):
        axes.axhline(entropy, color=GREY, linewidth=1, linestyle=(0, (4, 3)), label=f"exact entropy, {entropy:.4f}")
    axes.set_xlabel("steps")
    axes.set_ylabel("nats per token")
    axes.set_title("thin: training loss; dots: validation NELBO of the averaged weights", color=GREY)
    axes.legend(fontsize=8)
    return figure


def _total(record: dict[str, Any]) -> float:
    """The sum of the terms: with a curriculum, the loss that is minimised is less than the bound."""
    terms = [record[name] for name in ("reconstruction", "identification", "next_token") if name in record]
    return sum(terms) if terms else record["loss"]


def _label(run: Path, valid: list[dict[str, Any]]) -> str:
    return f"{run.name}, {validation_loss(valid[-1]):.4f}" if valid else run.name


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
