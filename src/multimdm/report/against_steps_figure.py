"""A figure of samples against the number of network calls K: one line per model, with intervals."""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from multimdm.evaluation.bootstrap import LEVEL, Estimate
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.report.pareto_figure import COLOURS, MARKERS, bars
from multimdm.report.style import GREY, apply_style, draw_legend, figure_with_legend

_DASHES = ((4, 3), (1, 1.6), (6, 2, 1, 2))
"""Of horizontal lines, one after the other."""
_DODGE = 1.025
"""By this factor of K the next model's points are moved, so that bars do not hide each other."""


def against_steps_figure(
    evaluations: Sequence[Evaluation],
    figure_of: Callable[[Measurement], Estimate | None],
    ylabel: str,
    title: str,
    log: bool = False,
    reference: Mapping[str, float] | None = None,
) -> Figure:
    """At matched entropy; what could not be matched is hollow. `reference`: levels of horizontal lines."""
    apply_style()
    figure, entries = figure_with_legend(len(evaluations) + len(reference or {})), []
    axes = figure.subplots()
    for number, evaluation in enumerate(evaluations):
        beside = _DODGE ** (number - (len(evaluations) - 1) / 2)
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        points = [(a, figure_of(a.measurement)) for a in evaluation.aligned]
        known = [(a, estimate) for a, estimate in points if estimate is not None]
        x = [a.measurement.steps * beside for a, _ in known]
        intervals = [bars(estimate) for _, estimate in known]
        axes.errorbar(
            x, [e.value for _, e in known], list(zip(*intervals, strict=True)), color=colour, elinewidth=0.9, capsize=2
        )
        for a, estimate in known:
            face = colour if a.reached else "white"
            axes.plot(
                a.measurement.steps * beside, estimate.value, marker, color=colour, markerfacecolor=face, markersize=5.5
            )
        entries.append((evaluation.label, axes.plot([], [], marker + "-", color=colour, markersize=5.5)[0]))
    for (name, level), dashes in zip((reference or {}).items(), cycle(_DASHES), strict=False):
        entries.append((name, axes.axhline(level, color=GREY, linewidth=1.2, linestyle=(0, dashes))))
    steps = sorted({a.measurement.steps for evaluation in evaluations for a in evaluation.aligned})
    axes.set_xscale("log", base=2)
    axes.set_xticks(steps, [str(K) for K in steps])
    axes.xaxis.set_minor_locator(NullLocator())
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_xlabel("network calls K")
    axes.set_ylabel(ylabel)
    spread = evaluations[0].spread
    axes.set_title(f"{title}\nbars: {LEVEL:.0%} intervals {spread}; hollow: entropy not reached", color=GREY)
    draw_legend(axes, entries)
    return figure
