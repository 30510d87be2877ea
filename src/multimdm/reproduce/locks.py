"""Locks between processes, by files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Whether the lock could be had. It is held until the end, and never outlives the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Where files cannot be locked, the library's substitute would stay behind when a process is killed.
    lock = FileLock(path, timeout=0, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
