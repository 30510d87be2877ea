"""Printed commands made short."""

from collections.abc import Sequence


def with_options(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """A command with these options, in place of those of the same name that it has."""
    replaced = {word for word in options if word.startswith("--")}
    kept: list[str] = []
    dropping = False
    for word in words:
        if word.startswith("--"):
            dropping = word in replaced
        if not dropping:
            kept.append(word)
    return [*kept, *options]
