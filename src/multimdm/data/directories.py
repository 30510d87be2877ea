"""Files and directories that appear whole or not at all."""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
    """Who writes."""
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
