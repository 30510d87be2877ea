"""How samples came to be, in the manner of Fig. 1: from noise at the top to text at the bottom.

On pages as lines of coloured words, where signs tell the same as the colours; and as a figure with boxes.
"""

from collections.abc import Mapping

from matplotlib.figure import Figure

from multimdm.evaluation.trajectory import Trajectory
from multimdm.report import style
from multimdm.report.document import States
from multimdm.report.forward_figure import draw_boxes, explain_boxes, mask_text, time_labels
from multimdm.report.signs import SIGNS, cut, legend, with_sign
from multimdm.samplers.trace import CLEAN, DESIGNATED, OTHER

_COLOURS = {CLEAN: style.CLEAN, DESIGNATED: style.DESIGNATED, OTHER: style.CORRUPTED}
_WIDEST = 14
"""Longer words are cut."""


def trajectory_figure(trajectories: Mapping[str, Trajectory], positions: int = 16) -> Figure:
    """One panel for each, of the first positions."""
    style.apply_style()
    rows = sum(len(trajectory.times) + 1 for trajectory in trajectories.values())
    figure = Figure(figsize=(0.78 * positions, 0.5 * rows + 0.6), layout="constrained")
    heights = [len(trajectory.times) for trajectory in trajectories.values()]
    panels = figure.subplots(len(trajectories), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, trajectory) in zip(panels, trajectories.items(), strict=True):
        axes.set_title(title, parse_math=False)
        cells = [
            [(_text(word, kind, trajectory), _COLOURS[kind]) for word, kind in zip(words, kinds, strict=True)]
            for words, kinds in (
                (words[:positions], kinds[:positions])
                for words, kinds in zip(trajectory.words, trajectory.kinds, strict=True)
            )
        ]
        draw_boxes(axes, time_labels(trajectory.times), cells)
    explain_boxes(figure, "other mask")
    return figure


def _text(word: str, kind: int, trajectory: Trajectory) -> str:
    """Masks are numbered if there are several, and nameless if there is one."""
    if kind != CLEAN and trajectory.several_masks:
        return mask_text(int(word))
    return word or mask_text(None)


def trajectory_picture(trajectory: Trajectory) -> States:
    """Time runs downwards; the words of a state are a line that breaks where the page ends."""
    rows = [
        (f"t = {time:.3g}", [(kind, SIGNS[kind] + cut(word, _WIDEST)) for word, kind in zip(words, kinds, strict=True)])
        for time, words, kinds in zip(trajectory.times, trajectory.words, trajectory.kinds, strict=True)
    ]
    masks = any(DESIGNATED in row for row in trajectory.kinds)
    return States([(kind, with_sign(kind, text)) for kind, text in legend(masks, trajectory.several_masks)], rows)
