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
"""How horizontal lines are dashed, one after the other."""
_DODGE = 1.025
"""The factor of K by which the next model's points are moved, so that bars do not hide each other."""


Points = Callable[[Evaluation], Sequence[tuple[Measurement, bool]]]
"""Measurements of a model at several K, and whether each is where it should be."""


def aligned_points(evaluation: Evaluation) -> list[tuple[Measurement, bool]]:
    """At the entropy asked for, as far as a temperature reaches it."""
    return [(one.measurement, one.reached) for one in evaluation.aligned]


def points_near_one(evaluation: Evaluation) -> list[tuple[Measurement, bool]]:
    """At the temperature nearest to one."""
    nearest: dict[int, Measurement] = {}
    for m in sorted(evaluation.measurements, key=lambda m: abs(m.temperature - 1)):
        nearest.setdefault(m.steps, m)
    return [(nearest[K], True) for K in sorted(nearest)]


def against_steps_figure(
    evaluations: Sequence[Evaluation],
    figure_of: Callable[[Measurement], Estimate | None],
    ylabel: str,
    title: str,
    log: bool = False,
    reference: Mapping[str, float] | None = None,
    points_of: Points = aligned_points,
) -> Figure:
    """At matched entropy, unless `points_of` says otherwise; what could not be matched is hollow.

    `reference`: levels of horizontal lines.
    """
    apply_style()
    figure, entries = figure_with_legend(len(evaluations) + len(reference or {})), []
    axes = figure.subplots()
    for number, evaluation in enumerate(evaluations):
        beside = _DODGE ** (number - (len(evaluations) - 1) / 2)
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        points = [(m.steps * beside, figure_of(m), reached) for m, reached in points_of(evaluation)]
        known = [(x, estimate, reached) for x, estimate, reached in points if estimate is not None]
        intervals = [bars(estimate) for _, estimate, _ in known]
        values = [estimate.value for _, estimate, _ in known]
        axes.errorbar(
            [x for x, _, _ in known],
            values,
            list(zip(*intervals, strict=True)),
            color=colour,
            elinewidth=0.9,
            capsize=2,
        )
        for x, estimate, reached in known:
            face = colour if reached else "white"
            axes.plot(x, estimate.value, marker, color=colour, markerfacecolor=face, markersize=5.5)
        entries.append((evaluation.label, axes.plot([], [], marker + "-", color=colour, markersize=5.5)[0]))
    for (name, level), dashes in zip((reference or {}).items(), cycle(_DASHES), strict=False):
        entries.append((name, axes.axhline(level, color=GREY, linewidth=1.2, linestyle=(0, dashes))))
    drawn = [point for evaluation in evaluations for point in points_of(evaluation)]
    steps = sorted({m.steps for m, _ in drawn})
    axes.set_xscale("log", base=2)
    axes.set_xticks(steps, [str(K) for K in steps])
    axes.xaxis.set_minor_locator(NullLocator())
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_xlabel("network calls K")
    axes.set_ylabel(ylabel)
    spread = evaluations[0].spread
    hollow = "" if all(reached for _, reached in drawn) else "; hollow: entropy not reached"
    axes.set_title(f"{title}\nbars: {LEVEL:.0%} intervals {spread}{hollow}", color=GREY)
    draw_legend(axes, entries)
    return figure
