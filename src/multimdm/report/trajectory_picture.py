"""A trajectory as lines of coloured words, as Fig. 1 draws them; signs tell the same as the colours."""

from multimdm.evaluation.trajectory import Trajectory
from multimdm.report.document import States
from multimdm.samplers.trace import CLEAN, DESIGNATED, OTHER

_SIGNS = {CLEAN: "", DESIGNATED: "◆", OTHER: "◇"}
"""As in the terminal."""
_WIDEST = 14
"""Longer words are cut."""


def trajectory_picture(trajectory: Trajectory) -> States:
    """Time runs downwards; the words of a state are a line that breaks where the page ends."""
    rows = [
        (f"t = {time:.3g}", [(kind, _SIGNS[kind] + _cut(word)) for word, kind in zip(words, kinds, strict=True)])
        for time, words, kinds in zip(trajectory.times, trajectory.words, trajectory.kinds, strict=True)
    ]
    return States([(kind, f"{_SIGNS[kind]} {name}".strip()) for kind, name in _legend(trajectory)], rows)


def _legend(trajectory: Trajectory) -> list[tuple[int, str]]:
    """What signs and colours mean."""
    masked = any(DESIGNATED in row for row in trajectory.kinds)
    names = [(CLEAN, "clean token" if masked else "final token")]
    if masked:
        names.append((DESIGNATED, "mask of the final token" if trajectory.several_masks else "mask"))
    if not masked or trajectory.several_masks:
        names.append((OTHER, "another mask" if masked else "another token"))
    return names


def _cut(word: str) -> str:
    return word if len(word) <= _WIDEST else word[: _WIDEST - 1] + "…"
