"""Fig. 1: forward trajectories of one sentence under uniform-state, masked and multi-mask diffusion."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from matplotlib.figure import Figure

from multimdm.process import MultiMask, Process, Uniform, categorical
from multimdm.report.boxes import draw_boxes, explain_boxes, mask_text, time_labels
from multimdm.report.style import CLEAN, CORRUPTED, DESIGNATED, apply_style, save

WORDS = ("life", "man", "judge", "rich", "day", "wine", "love", "storm", "law", "queen", "child", "river", "bread")
"""What uniform-state diffusion may replace a word by, besides the words of the sentence."""


@dataclass(frozen=True)
class Trajectory:
    """The states of one forward path, at falling visibility."""

    title: str
    times: list[float]
    cells: list[list[tuple[str, str]]]
    """For each time and position, the text and its colour."""


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


def save_forward_figure(trajectories: Sequence[Trajectory], path: Path) -> None:
    """Draw and write the figure."""
    save(forward_figure(trajectories), path)
