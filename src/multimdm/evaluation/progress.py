"""How work reports that it goes on."""

from collections.abc import Callable

Progress = Callable[[int], None]
"""Told how much was done since it was told last: sequences times network calls, one call for judging."""


def ignore(done: int) -> None:
    """For those who do not watch."""
