"""What may be missing, and must not be in a test."""

from typing import TypeVar

Value = TypeVar("Value")


def present(value: Value | None) -> Value:
    """The value itself; None fails the test."""
    assert value is not None
    return value
