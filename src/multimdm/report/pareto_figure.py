"""Perplexity against entropy as the temperature varies: one curve per model (or per K), better to the lower right."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from multimdm.evaluation.bootstrap import LEVEL
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.evaluation.real_text import RealFigures
from multimdm.report.formats import calls_text, perplexity_text
from multimdm.report.style import GREY, apply_style, draw_legend, figure_with_legend, save

Curves = dict[str, list[Measurement]]
"""Label of a curve -> its points."""
COLOURS = (
    *("#00798c", "#d1495b", "#edae49", "#5b5ea6", "#66a182", "#8d5a97", "#2e4057", "#c17c74"),
    *("#3d9be9", "#8a9a2b", "#d14fa4", "#6d4c41"),
)
MARKERS = "osD^vPXh<>*p"
_STRETCH = 10
"""How much farther the axis may reach to show real text."""


def fronts(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> dict[str, Curves]:
    """Title of a picture -> its curves: one picture per K for several models, one in all for a single one."""
    if len(evaluations) == 1:
        (e,) = evaluations
        return {e.label: {_label(f"K = {K}", at_step(e, steps, K), K): at_step(e, steps, K) for K in steps}}
    return {f"K = {K}": curves_at(evaluations, steps, K) for K in steps}


def curves_at(evaluations: Sequence[Evaluation], steps: Sequence[int], K: int) -> Curves:
    """A curve for each model; those that take another number of network calls say so."""
    return {_label(e.label, points, K): points for e in evaluations for points in [at_step(e, steps, K)]}


def at_step(evaluation: Evaluation, steps: Sequence[int], K: int) -> list[Measurement]:
    """The temperature sweep at one K of those that were asked for.

    Measurements come K by K, by place rather than by their own K: an autoregressive model has one for all.
    """
    per_step = len(evaluation.measurements) // len(steps)
    place = list(steps).index(K) * per_step
    return list(evaluation.measurements[place : place + per_step])


def _label(name: str, points: Sequence[Measurement], K: int) -> str:
    calls = max((m.nfe for m in points), default=K)
    return f"{name} {calls_text(calls, K)}".strip()


def pareto_figure(curves: Mapping[str, Sequence[Measurement]], real: RealFigures | None, title: str) -> Figure:
    """Points joined in the order of temperature, with their intervals; tau = 1 is filled."""
    apply_style()
    figure = figure_with_legend(len(curves) + (real is not None))
    axes = figure.subplots()
    judges = {m.judge for curve in curves.values() for m in curve}
    entries = [
        (label, _draw(axes, curve, COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]))
        for number, (label, curve) in enumerate(curves.items())
    ]
    axes.set_yscale("log")
    if real is not None:
        entries.append(_draw_real(axes, real))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("sample entropy (nats)")
    # Names are no formulas: a dollar sign in one of them is a dollar sign.
    axes.set_ylabel(f"GenPPL by {', '.join(sorted(str(judge) for judge in judges))}", parse_math=False)
    axes.set_title(f"{title}\nfilled: tau = 1; bars: {LEVEL:.0%} intervals", color=GREY, parse_math=False)
    draw_legend(axes, entries)
    return figure


def save_fronts(evaluations: Sequence[Evaluation], steps: Sequence[int], out: Path) -> None:
    """A picture for each K: pareto-K4.png and so on."""
    for K in steps:
        curves = curves_at(evaluations, steps, K)
        save(pareto_figure(curves, evaluations[0].real, f"K = {K}"), out / f"pareto-K{K}.png")


def _draw(axes, curve: Sequence[Measurement], colour: str, marker: str) -> Line2D:
    """Points with their bars; the sign that stands for them in the legend."""
    points = [(m, m.gen_ppl) for m in sorted(curve, key=lambda m: m.temperature) if m.gen_ppl is not None]
    x, y = [m.entropy.value for m, _ in points], [ppl.value for _, ppl in points]
    reach = [bars(m.entropy) for m, _ in points], [bars(ppl) for _, ppl in points]
    xerr, yerr = (list(zip(*each, strict=True)) if each else None for each in reach)
    axes.errorbar(x, y, yerr, xerr, color=colour, linewidth=1.4, elinewidth=0.8, alpha=0.9)
    for m, ppl in points:
        face = colour if m.temperature == 1 else "white"
        axes.plot(m.entropy.value, ppl.value, marker, color=colour, markerfacecolor=face, markersize=5.5)
    return axes.plot([], [], marker + "-", color=colour, markersize=5.5)[0]


def _draw_real(axes, real: RealFigures) -> tuple[str, Line2D]:
    """A line at its entropy, and a star if that leaves the curves room."""
    said = f", GenPPL {perplexity_text(real.gen_ppl.value)}" if real.gen_ppl is not None else ""
    line = axes.axvline(real.entropy.value, color=GREY, linewidth=1, linestyle=(0, (1, 2)))
    bottom, top = axes.get_ylim()
    if real.gen_ppl is not None and bottom / _STRETCH <= real.gen_ppl.value <= top * _STRETCH:
        axes.plot(real.entropy.value, real.gen_ppl.value, "*", color="black", markersize=11)
    return f"real text{said}", line


def bars(estimate) -> tuple[float, float]:
    """How far the interval reaches down and up; a percentile interval may miss the value itself."""
    if estimate.low is None or estimate.high is None:
        return 0.0, 0.0
    return max(0.0, estimate.value - estimate.low), max(0.0, estimate.high - estimate.value)


def png_data(figure: Figure) -> str:
    """The figure as a data: address, for pages that stand alone."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
