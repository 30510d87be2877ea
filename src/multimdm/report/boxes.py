"""Trajectories as rows of coloured boxes, one per token, as Fig. 1 draws them."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch

from multimdm.report.style import CLEAN, CORRUPTED, DESIGNATED, GREY

_LONGEST = 7
"""Letters that fit into a box at full size; longer words are set smaller."""

_ROW, _COLUMN, _BOX = 1.0, 1.5, (1.34, 0.74)


def draw_boxes(axes, labels: Sequence[str], cells: Sequence[Sequence[tuple[str, str]]]) -> None:
    """Rows under each other, as time runs; for each row and position, a text and its colour."""
    axes.set_axis_off()
    rows, positions = len(labels), len(cells[0])
    axes.set_xlim(-1.9, (positions - 1) * _COLUMN + 0.8)
    axes.set_ylim(-0.6, (rows - 1) * _ROW + 0.6)
    for row, (label, states) in enumerate(zip(labels, cells, strict=True)):
        y = (rows - 1 - row) * _ROW
        axes.text(-0.85, y, label, ha="right", va="center", color=GREY, fontsize=8)
        for column, (text, colour) in enumerate(states):
            x = column * _COLUMN
            box = FancyBboxPatch(
                (x - _BOX[0] / 2, y - _BOX[1] / 2),
                *_BOX,
                boxstyle="round,pad=0,rounding_size=0.2",
                facecolor=colour,
                edgecolor="black",
                linewidth=0.6,
            )
            axes.add_patch(box)
            size = min(9.0, 9.0 * _LONGEST / max(1, len(text))) if not text.startswith("[M") else 9.0
            axes.text(x, y, text, ha="center", va="center", fontsize=size, parse_math=text.startswith("[M"))


def time_labels(times: Sequence[float]) -> list[str]:
    """What rows are called."""
    return [f"t = {t:.3g}" for t in times]


def mask_text(number: int | None) -> str:
    """What a box says of a mask; None if there is but one."""
    return "[M]" if number is None else f"[M$_{{{number + 1}}}$]"


def explain_boxes(figure: Figure, other: str) -> None:
    """What the colours mean."""
    legend = [("clean", CLEAN), ("designated mask", DESIGNATED), (other, CORRUPTED)]
    figure.legend(
        handles=[Patch(facecolor=colour, edgecolor="black", linewidth=0.6, label=label) for label, colour in legend],
        loc="outside lower center",
        ncols=3,
    )
