"""The other side of `sandbox.py`: a script that limits itself, then runs the program it is given on its input.

It is started by path with an isolated interpreter and imports nothing but the standard library. Limits come twice: from
the kernel as far as it can, and from a hook in the interpreter, for kernels that cannot.
"""

import ctypes
import os
import posix
import resource
import sys
from collections.abc import Callable, Sequence
from typing import Any

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_NO_NEW_PRIVILEGES = 38
_EXECUTE = 1 << 0
_READ = 1 << 2 | 1 << 3  # files, directories
_TCP = 1 << 0 | 1 << 1  # bind, connect
_OUTSIDE = 1 << 0 | 1 << 1  # abstract sockets and signals of processes without these limits
_OUTPUT_BYTES = 2**20
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_CLOSED = (
    *("subprocess", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.spawn"),
    *("socket", "os.kill", "signal", "resource", "sqlite3", "syslog", "shutil", "os.putenv"),
    *("os.chmod", "os.chown", "os.link", "os.symlink", "os.setxattr", "os.removexattr"),
    *("ctypes", "gc.get_"),  # ways around this list
)
_CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.utime")
_LISTS = ("os.listdir", "os.scandir")


def main(place: str, done: int, seconds: float, megabytes: int) -> None:
    """Limit this process and run the program."""
    program = sys.stdin.buffer.read().decode()
    readable = [*(path for path in sys.path if os.path.isdir(path)), sys.base_prefix, "/usr", "/lib", "/lib64"]
    limit_resources(seconds, megabytes)
    limit_by_kernel(place, readable)
    for module in (os, posix):
        vars(module).pop("pidfd_open", None)  # signals by such handles are not reported to the hook
    sys.addaudithook(_guard(place, readable))
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
    os.write(done, b"done")


def limit_resources(seconds: float, megabytes: int) -> None:
    """Memory, files, processes; processor time, which comes in only if the clock of `sandbox.py` does not."""
    wanted = {
        resource.RLIMIT_CPU: int(2 * seconds) + 1,
        resource.RLIMIT_AS: megabytes * 2**20,
        resource.RLIMIT_FSIZE: _OUTPUT_BYTES,
        resource.RLIMIT_NOFILE: 32,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in wanted.items():
        try:
            resource.setrlimit(kind, (value, value))
        except ValueError:  # a lower limit holds already
            continue


def limit_by_kernel(place: str, readable: Sequence[str]) -> int:
    """Let Landlock allow it to read these directories and write in one, but no program, process or TCP port.

    Returns its version, 0 for a kernel without it: files are limited from version 1 on, TCP from 4, signals from 6.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_LANDLOCK_CREATE, None, 0, 1) if sys.platform == "linux" else 0
    if version < 1:
        return 0
    files = (1 << {1: 13, 2: 14}.get(version, 15)) - 1
    attributes = (ctypes.c_uint64 * 3)(files, _TCP, _OUTSIDE)
    size = 8 * (1 + (version >= 4) + (version >= 6))
    ruleset = _checked(libc.syscall(_LANDLOCK_CREATE, ctypes.byref(attributes), size, 0))
    for path, access in [*((path, _READ) for path in readable), (place, files & ~_EXECUTE)]:
        if not os.path.isdir(path):
            continue
        handle = os.open(path, os.O_PATH | os.O_DIRECTORY)
        rule = (ctypes.c_uint64 * 2)(access, handle)  # the kernel reads 12 bytes: a mask and a handle
        _checked(libc.syscall(_LANDLOCK_ADD, ruleset, 1, ctypes.byref(rule), 0))
        os.close(handle)
    _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)
    return version


def _checked(result: int) -> int:
    """A limit that cannot be set must not pass for one that is."""
    if result < 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses to limit this program")
    return result


def _guard(place: str, readable: Sequence[str]) -> Callable[[str, tuple[Any, ...]], None]:
    """Refuse by name, in the interpreter, what a solution of an exercise never needs."""
    own = os.path.realpath(place)
    known = [own, *map(os.path.realpath, readable)]

    def within(path: Any, *roots: str) -> bool:
        if not isinstance(path, str | bytes):
            return False
        real = os.path.realpath(os.fsdecode(path))
        return any(real == root or real.startswith(root + os.sep) for root in roots)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(_CLOSED):
            raise PermissionError(f"{event} is closed to generated code")
        if event == "open":
            path, mode, flags = arguments
            if (isinstance(mode, str) and set(mode) & set("wax+")) or flags & _WRITING:
                if not within(path, own):
                    raise PermissionError(f"generated code may not write {path!r}")
            elif not isinstance(path, int) and not within(path, *known):  # a number is a file that is open already
                raise PermissionError(f"generated code may not read {path!r}")
        if event.startswith(_CHANGES) and not within(arguments[0], own):
            raise PermissionError(f"{event} is closed to generated code")
        if event in _LISTS and not within(arguments[0] or ".", *known):
            raise PermissionError(f"generated code may not list {arguments[0]!r}")

    return hook


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
