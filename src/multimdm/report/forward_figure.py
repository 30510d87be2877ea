"""Fig. 1: texts on their way as rows of coloured boxes, one per token.

`forward_figure` draws one sentence under uniform-state, masked and multi-mask diffusion; `trajectory_figure.py` draws
samples in the same boxes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch

from multimdm.process import MultiMask, Process, Uniform, categorical
from multimdm.report.style import CLEAN, CORRUPTED, DESIGNATED, GREY, apply_style

WORDS = ("life", "man", "judge", "rich", "day", "wine", "love", "storm", "law", "queen", "child", "river", "bread")
"""What uniform-state diffusion may replace a word by, besides the words of the sentence."""

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
    """What the rows of a picture are called."""
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


@dataclass(frozen=True)
class Trajectory:
    """The states of one forward path, at falling visibility."""

    title: str
    times: list[float]
    cells: list[list[tuple[str, str]]]
    """The text and its colour at each time and position."""


def forward_trajectories(sentence: str, num_masks: int, seed: int, steps: int = 5) -> list[Trajectory]:
    """One draw of each forward Markov chain, by its transition kernel."""
    words = sentence.split()
    vocabulary = list(dict.fromkeys([*words, *WORDS]))
    x_0 = torch.tensor([vocabulary.index(word) for word in words])
    V = len(vocabulary)
    processes: list[tuple[str, Process]] = [
        ("Uniform-state diffusion", Uniform(V)),
        ("Masked diffusion", MultiMask(V, 1)),
        (f"Multi-mask diffusion, M = {num_masks}", MultiMask(V, num_masks)),
    ]
    times = [k / steps for k in range(steps + 1)]
    result = []
    for title, process in processes:
        generator = torch.Generator().manual_seed(seed)
        states = [x_0]
        for s, t in pairwise(times):
            states.append(categorical(process.transition(states[-1], s, t), generator))
        cells = [_describe(process, x_0, x_t, vocabulary) for x_t in states]
        result.append(Trajectory(title, times, cells))
    return result


def _describe(process: Process, x_0: torch.Tensor, x_t: torch.Tensor, words: list[str]) -> list[tuple[str, str]]:
    """Text and colour of every position."""
    cells = []
    for clean, state in zip(x_0.tolist(), x_t.tolist(), strict=True):
        if state < process.vocab_size:
            cells.append((words[state], CLEAN if state == clean else CORRUPTED))
            continue
        mask = state - process.vocab_size
        home = isinstance(process, MultiMask) and int(process.assignment[clean]) == mask
        text = mask_text(None if process.num_masks == 1 else mask)
        cells.append((text, DESIGNATED if home and process.num_masks > 1 else CORRUPTED))
    return cells


def forward_figure(trajectories: Sequence[Trajectory]) -> Figure:
    """One panel per process: time runs downwards, one box per token."""
    apply_style()
    positions = len(trajectories[0].cells[0])
    width = 1.15 * positions * len(trajectories)
    figure = Figure(figsize=(max(9.0, 0.62 * width), 0.55 * len(trajectories[0].times) + 1.1), layout="constrained")
    panels = figure.subplots(1, len(trajectories), squeeze=False)[0]
    for axes, trajectory in zip(panels, trajectories, strict=True):
        axes.set_title(trajectory.title)
        draw_boxes(axes, time_labels(trajectory.times), trajectory.cells)
    explain_boxes(figure, "other mask or word")
    return figure
