"""Locks between processes, as files: each goes with the process that holds it, however that comes to its end."""

import errno
from pathlib import Path

from filelock import FileLock, Timeout


def take_lock(path: Path) -> FileLock | None:
    """The lock, which is held until it is released; None if another process has it."""
    # Where files cannot be locked, the library's substitute would stay behind when a process is killed.
    lock = FileLock(path, timeout=0, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise OSError(errno.ENOSYS, "this file system has no locks for files; use another", str(path)) from None
        raise
    return lock
