"""The other side of `sandbox.py`: a script that limits itself, then runs the program it is given on its input.

It is started by path with an isolated interpreter and imports nothing but the standard library.
"""

import ctypes
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_NO_NEW_PRIVILEGES = 38
_READ = 1 << 2 | 1 << 3  # files, directories
_EVERYTHING = (1 << 13) - 1  # of the first version of Landlock
_OUTPUT_BYTES = 2**20

_CLOSED = ("subprocess", "socket", "ctypes", "shutil", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork")
_CLOSED += ("os.kill", "os.putenv", "pty.spawn", "signal", "resource", "os.chmod", "os.chown", "os.link", "os.symlink")
_CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.utime")


def main(place: str, done: int, seconds: float, megabytes: int) -> None:
    """Limit this process and run the program."""
    program = sys.stdin.buffer.read().decode()
    _limit_resources(seconds, megabytes)
    _limit_files(place)
    sys.addaudithook(_guard(os.path.realpath(place)))
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
    os.write(done, b"done")


def _limit_resources(seconds: float, megabytes: int) -> None:
    whole = int(seconds) + 1
    wanted = {
        resource.RLIMIT_CPU: whole,
        resource.RLIMIT_AS: megabytes * 2**20,
        resource.RLIMIT_FSIZE: _OUTPUT_BYTES,
        resource.RLIMIT_NOFILE: 32,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in wanted.items():
        try:
            resource.setrlimit(kind, (value, value))
        except ValueError:  # a lower limit holds already
            continue


def _limit_files(place: str) -> None:
    """By the kernel, where it has Landlock: read anything that Python needs, write in one directory."""
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform != "linux" or libc.syscall(_LANDLOCK_CREATE, None, 0, 1) < 1:
        return
    handled = ctypes.c_uint64(_EVERYTHING)
    ruleset = libc.syscall(_LANDLOCK_CREATE, ctypes.byref(handled), 8, 0)
    readable = {path for path in (*sys.path, sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64") if path}
    for path, access in [*((path, _READ) for path in sorted(readable)), (place, _EVERYTHING & ~1)]:
        if not os.path.isdir(path):
            continue
        handle = os.open(path, os.O_PATH | os.O_DIRECTORY)
        rule = (ctypes.c_uint64 * 2)(access, handle)  # the kernel reads 12 bytes: a mask and a handle
        libc.syscall(_LANDLOCK_ADD, ruleset, 1, ctypes.byref(rule), 0)
        os.close(handle)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _guard(place: str) -> Callable[[str, tuple[Any, ...]], None]:
    """Refuse by name, in the interpreter, what a solution of an exercise never needs."""

    def inside(path: Any) -> bool:
        return isinstance(path, str | bytes) and os.path.realpath(os.fsdecode(path)).startswith(place + os.sep)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(_CLOSED):
            raise PermissionError(f"{event} is closed to generated code")
        if event == "open":
            path, mode, flags = arguments
            by_mode = isinstance(mode, str) and set(mode) & set("wax+")
            if (by_mode or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) and not inside(path):
                raise PermissionError(f"generated code may not write {path!r}")
        if event.startswith(_CHANGES) and not inside(arguments[0]):
            raise PermissionError(f"{event} is closed to generated code")

    return hook


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
