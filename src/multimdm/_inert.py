"""Text that is not trusted, in messages and on terminals: shown, never obeyed."""

import unicodedata

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that turn the direction of what is beside them, so that a line reads as what it is not."""


def inert(text: str) -> str:
    """The text with all that a terminal would obey written out (\\x1b for an escape): what is left is to be read."""
    return "".join(_written_out(c) if _obeyed(c) else c for c in text)


def inert_json(text: str) -> str:
    """JSON in which such characters, which can stand inside of strings only, are escaped as JSON has it."""
    return "".join(f"\\u{ord(c):04x}" if _obeyed(c) else c for c in text)


def shown(value: object, most: int = 80) -> str:
    """A value in an error: as Python writes it, and not without end."""
    text = repr(value) if not isinstance(value, dict | list | tuple) else f"a {type(value).__name__} of {len(value)}"
    return text if len(text) <= most else f"{text[:most]}..."


def reason(error: BaseException) -> str:
    """Why something failed, in the first line of a library's words."""
    return inert(next(iter(str(error).splitlines()), type(error).__name__))[:300]


def _obeyed(c: str) -> bool:
    return c not in "\n\t" and (unicodedata.category(c) in ("Cc", "Cs") or c in _BIDI)


def _written_out(c: str) -> str:
    return c.encode("unicode_escape").decode()
