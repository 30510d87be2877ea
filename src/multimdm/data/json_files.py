"""JSON files that may be a stranger's: read within limits, and refused in one sentence."""

import hashlib
import json
from pathlib import Path
from typing import Any

from multimdm.data.inert import inert

MOST_BYTES = 64 * 2**20
"""Settings with the mask of every token of a large vocabulary have one."""
DEEPEST = 64


def read_json(path: Path, remedy: str = "") -> dict[str, Any]:
    """A JSON object; errors name the file, and the remedy if there is one."""
    value = parse_json(read_text(path), str(path), remedy)
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object; it holds a {type(value).__name__}{remedy}")
    return value


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """A text file, if it is one and not too large for what it should be."""
    if not path.is_file():
        raise ValueError(f"{path} is missing" if not path.exists() else f"{path} is not a file")
    size = path.stat().st_size
    if size > most:
        raise ValueError(f"{path} has {size:,} bytes; a file of this kind has {most:,} at most")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8: {error.reason} at byte {error.start}") from None


def parse_json(text: str, where: str, remedy: str = "") -> Any:
    """What the text says; too deep for anything that is meant is an error like others."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply to be what it should{remedy}") from None
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {inert(str(error))}{remedy}") from None
    check_plain(value, where, remedy)
    return value


def check_plain(value: Any, where: str, remedy: str = "", most: int | None = None) -> None:
    """Refuse data that are nested too deeply, or that repeat their parts too often to be written out."""
    waiting, number = [(value, 1)], 0
    while waiting:
        part, depth = waiting.pop()
        number += 1
        if depth > DEEPEST:
            raise ValueError(f"{where} is nested deeper than {DEEPEST} levels{remedy}")
        if most is not None and number > most:
            raise ValueError(f"{where} holds more than {most:,} values{remedy}")
        if isinstance(part, dict):
            waiting += [(inner, depth + 1) for inner in part.values()]
        elif isinstance(part, list | tuple):
            waiting += [(inner, depth + 1) for inner in part]


def seal(content: dict[str, Any]) -> str:
    """sha256 of all that an object says but under `sha256`: where bits may flip, the object itself can tell.

    A flipped bit in a number makes another number, which is no less well-formed.
    """
    told = json.loads(json.dumps({key: value for key, value in content.items() if key != "sha256"}))  # as it is read
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
