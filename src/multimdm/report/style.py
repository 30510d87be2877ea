"""How figures look, and how they are written."""

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from multimdm.data.directories import whole_file

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


def save(figure: Figure, path: Path) -> None:
    """Write a PNG whole or not at all."""
    with whole_file(path) as partial:
        figure.savefig(partial, format="png")
