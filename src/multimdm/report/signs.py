"""How states are told apart without colours, in the terminal and on pages alike."""

from multimdm.samplers.trace import CLEAN, DESIGNATED, OTHER

SIGNS = {CLEAN: "", DESIGNATED: "◆", OTHER: "◇"}


def legend(masks: bool, several: bool) -> list[tuple[int, str]]:
    """What the signs mean, for states that may be masks, or several of them."""
    if not masks:
        return [(CLEAN, "final token"), (OTHER, "another token")]
    if not several:
        return [(CLEAN, "clean token"), (DESIGNATED, "mask")]
    return [(CLEAN, "clean token"), (DESIGNATED, "mask of the final token"), (OTHER, "another mask")]


def with_sign(kind: int, text: str) -> str:
    """An entry of the legend."""
    return f"{SIGNS[kind]} {text}".strip()


def cut(word: str, most: int) -> str:
    """The beginning of a longer word."""
    return word if len(word) <= most else word[: most - 1] + "…"
