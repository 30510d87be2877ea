"""A trajectory as lines of coloured words, as Fig. 1 draws them; signs tell the same as the colours."""

from multimdm.evaluation.trajectory import Trajectory
from multimdm.report.page import Markup, escape
from multimdm.samplers.trace import CLEAN, DESIGNATED, OTHER

_SIGNS = {CLEAN: "", DESIGNATED: "◆", OTHER: "◇"}
"""As in the terminal."""
_WIDEST = 14
"""Longer words are cut."""


def trajectory_picture(trajectory: Trajectory) -> Markup:
    """Time runs downwards; the words of a state are a line that breaks where the page ends."""
    lines = []
    for time, words, kinds in zip(trajectory.times, trajectory.words, trajectory.kinds, strict=True):
        cells = " ".join(
            f'<span class="k{kind}">{_SIGNS[kind]}{_word(word)}</span>' for word, kind in zip(words, kinds, strict=True)
        )
        lines.append(f"<p><b>t = {time:.3g}</b> {cells}</p>")
    return Markup(f'<div class="steps">\n{"".join(lines)}\n</div>')


def legend(trajectory: Trajectory) -> Markup:
    """What signs and colours mean."""
    masked = any(DESIGNATED in row for row in trajectory.kinds)
    names = [(CLEAN, "clean token" if masked else "final token")]
    if masked:
        names.append((DESIGNATED, "mask of the final token" if trajectory.several_masks else "mask"))
    if not masked or trajectory.several_masks:
        names.append((OTHER, "another mask" if masked else "another token"))
    spans = "".join(f'<span class="k{kind}">{f"{_SIGNS[kind]} {escape(name)}".strip()}</span>' for kind, name in names)
    return Markup(f'<p class="legend">{spans}</p>')


def _word(word: str) -> str:
    return escape(word if len(word) <= _WIDEST else word[: _WIDEST - 1] + "…")
