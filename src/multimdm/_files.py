"""Files and directories: written whole or not at all, and read within limits, since others may have made them."""

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from multimdm._inert import inert

MOST_BYTES = 64 * 2**20
"""Settings with the mask of every token of a large vocabulary have one."""
DEEPEST = 64


@contextmanager
def whole_directory(target: Path) -> Iterator[Path]:
    """A new directory beside `target` to write into; it takes the target's place if all goes well.

    After an error or Ctrl-C nothing is left, and an older target is as it was. A process that is killed outright leaves
    its hidden directory, which the next one on this machine removes. A full disk is an OSError that names the target.
    """
    target = Path(os.path.realpath(target))  # a link stays a link, and what it leads to is replaced
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    mark = _mark()
    partial = target.with_name(f".{target.name}.partial-{mark}")
    partial.mkdir()
    try:
        yield partial
        if target.exists():
            old = target.with_name(f".{target.name}.old-{mark}")
            target.rename(old)
            try:
                partial.rename(target)
            except BaseException:
                old.rename(target)
                raise
            shutil.rmtree(old)
        else:
            partial.rename(target)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            _name(error, target)
        raise


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A file beside `target` to write that takes its place if all goes well, and is gone if not.

    What a killed process left of it goes with the next one.
    """
    _remove_leftovers(target)
    partial = target.with_name(f".{target.name}.partial-{_mark()}")
    try:
        yield partial
        os.replace(partial, target)
    except OSError as error:
        _name(error, target)
        raise
    finally:
        partial.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with whole_file(target) as partial:
        partial.write_text(text, encoding="utf-8")


def _name(error: OSError, target: Path) -> None:
    """Writing to a file that is open fails without its name."""
    if error.errno is not None and error.filename is None:
        error.filename = str(target)


def _mark() -> str:
    """The mark of the process that writes."""
    return f"{socket.gethostname()}-{os.getpid()}"


def _remove_leftovers(target: Path) -> None:
    """What a process of this machine left when it was killed."""
    for kind in ("partial", "old"):
        start = f".{target.name}.{kind}-{socket.gethostname()}-"
        for path in target.parent.iterdir():
            number = path.name.removeprefix(start)
            if not path.name.startswith(start) or not number.isdecimal() or _alive(int(number)):
                continue
            if kind == "old" and not target.exists():
                path.rename(target)  # it was killed between the two renamings
            elif path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    if process == os.getpid():
        return False  # an earlier process had the number
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


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
    kept = json.loads(json.dumps({key: value for key, value in content.items() if key != "sha256"}))  # as it is read
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
