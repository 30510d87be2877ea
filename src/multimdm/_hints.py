"""What someone may have meant who named what is not there."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most like this one, if one is like it at all."""
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def hint(name: str, known: Iterable[str], otherwise: str) -> str:
    """The nearest of the known names; where none is near, all of them, after the words of `otherwise`."""
    names = list(known)
    near = nearest(name, names)
    return f"{otherwise}: {', '.join(names)}" if near is None else f"did you mean '{near}'?"
