"""Fig. (conditional_entropy): the uncertainty of the clean token against time, one line per coupling."""

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from multimdm.evaluation.conditional_entropy import Point, Study
from multimdm.report.columns import csv_file
from multimdm.report.style import GREY, apply_style

_UNIFORM_COLOURS = {"unconditioned": "#d1495b", "gumbel": "#d1495b", "gaussian": "#edae49"}
_DASHES = {"unconditioned": (0, (4, 2)), "gumbel": "solid", "gaussian": "solid"}


def points_csv(points: Sequence[Point]) -> str:
    """`time,curve,value,standard_error`, one row per point."""
    rows = [[p.time, p.curve, p.value, p.standard_error] for p in points]
    return csv_file(["time", "curve", "value", "standard_error"], rows)


def study_title(study: Study) -> str:
    """The setting, above the figure."""
    return (
        f"Zipf({study.exponent:g}) token, V = {study.vocab_size}, rho = {study.rho:g}, "
        f"{study.samples:,} draws per time; bands: two standard errors"
    )


def entropy_figure(points: Sequence[Point], title: str) -> Figure:
    """Two panels on one scale: uniform and masked diffusion, then multi-mask diffusion by number of masks."""
    apply_style()
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    curves: dict[str, list[Point]] = {}
    for point in points:
        curves.setdefault(point.curve, []).append(point)
    masks = sorted({int(name.split()[1].removeprefix("M=")) for name in curves if name.startswith("multimask")})
    shades = matplotlib.colormaps["viridis_r"].resampled(256)
    colours = {M: shades(0.15 + 0.75 * k / max(1, len(masks) - 1)) for k, M in enumerate(masks)}

    for name, curve in curves.items():
        process, *rest = name.split(" ", 1)
        if process == "uniform":
            kind = rest[0]
            label = "uniform, " + {"unconditioned": "no noise given", "gumbel": "shared Gumbel"}.get(
                kind, "shared Gaussian"
            )
            _draw(left, curve, label, _UNIFORM_COLOURS[kind], _DASHES[kind])
        elif process == "masked":
            dashes = (0, (1, 1.5)) if name.endswith("once masked") else (0, (4, 2))
            _draw(left, curve, name.replace(" unconditioned", ""), GREY, dashes)
        else:
            mask_count, kind = rest[0].split()
            M = int(mask_count.removeprefix("M="))
            label = f"M = {M}" if kind == "gumbel" else ""
            _draw(right, curve, label, colours[M], _DASHES[kind])
    left.set_title("Uniform-state and masked diffusion")
    right.set_title("Multi-mask diffusion (dashed: no noise given)")
    left.set_ylabel("entropy of the clean token (nats)")
    for axes in (left, right):
        axes.set_xlabel("time t")
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
    left.legend(loc="lower right", fontsize=8)
    right.legend(loc="upper left", fontsize=8)
    figure.suptitle(title, fontsize=10, color=GREY)
    return figure


def _draw(axes, curve: list[Point], label: str, colour, dashes) -> None:
    """A line with a band of two standard errors."""
    curve = sorted(curve, key=lambda point: point.time)
    times, values = [p.time for p in curve], [p.value for p in curve]
    axes.plot(times, values, color=colour, linestyle=dashes, label=label or "_hidden")
    low = [p.value - 2 * p.standard_error for p in curve]
    high = [p.value + 2 * p.standard_error for p in curve]
    axes.fill_between(times, low, high, color=colour, alpha=0.25, linewidth=0)
