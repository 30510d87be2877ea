"""Checks of plain arguments: an error names the argument, its value and what is asked of it."""

import math
import operator
from collections.abc import Iterable
from numbers import Real

from multimdm._inert import shown


def require(condition: bool, message: str) -> None:
    """Raise ValueError with `message` unless `condition` holds."""
    if not condition:
        raise ValueError(message)


def check_integer(name: str, value: int, minimum: int) -> int:
    """An integer argument that is at least `minimum`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ValueError(f"{name} must be an integer of at least {minimum}; got {value!r}")
    require(number >= minimum, f"{name} must be at least {minimum}; got {number}")
    return number


def check_complete(what: str, wanted: Iterable[str], found: Iterable[str]) -> None:
    """Tensors by their names: none is missing, and none too many."""
    missing = sorted({*wanted} - {*found})
    extra = sorted({*found} - {*wanted})
    require(not missing, f"{what} lacks {len(missing)} tensors, the first is {shown((missing or [''])[0])}")
    require(not extra, f"{what} has {len(extra)} tensors too many, the first is {shown((extra or [''])[0])}")


def check_positive(name: str, value: float | int) -> None:
    """A finite number above zero."""
    require(
        isinstance(value, Real) and math.isfinite(value) and value > 0,
        f"{name} must be a finite number above 0; got {value!r}",
    )
