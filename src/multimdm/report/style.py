"""How figures look, and how they are written."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from multimdm._files import whole_file
from multimdm._inert import inert

GREY = "#5c6670"

CLEAN = "#a9f1ec"
"""A clean token, as in Fig. 1."""
DESIGNATED = "#33d5dd"
"""A token at its designated mask."""
CORRUPTED = "#66bffe"
"""A token at another mask, or replaced."""


def apply_style() -> None:
    """Plain axes, light grid, no chart junk."""
    matplotlib.rcParams.update(
        {
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#e3e6e9",
            "grid.linewidth": 0.7,
            "axes.axisbelow": True,
            "axes.titlesize": 10,
            "axes.labelsize": 10,
            "font.size": 9,
            "legend.frameon": False,
            "lines.linewidth": 1.7,
            "savefig.dpi": 160,
        }
    )


_CROWDED = 6
"""More entries of a legend than these would hide what they explain."""


def figure_with_legend(entries: int) -> Figure:
    """A figure for one panel, with room beside it if the legend is long."""
    return Figure(figsize=(6.4 if entries <= _CROWDED else 8.3, 4.4), layout="constrained")


def draw_legend(axes: Axes, entries: Sequence[tuple[str, Artist]]) -> None:
    """Within the axes, or beside them if it is long.

    Texts are set afterwards: some versions make no entry for a label that begins with an underscore.
    """
    beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if len(entries) > _CROWDED else {}
    legend = axes.legend([sign for _, sign in entries], ["entry"] * len(entries), fontsize=8, **beside)
    for text, (label, _) in zip(legend.get_texts(), entries, strict=True):
        text.set_parse_math(False)
        text.set_text(inert(label))


def save(figure: Figure, path: Path) -> None:
    """Write a PNG whole or not at all."""
    with whole_file(path) as partial:
        figure.savefig(partial, format="png")
