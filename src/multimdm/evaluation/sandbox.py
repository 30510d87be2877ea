"""Running programs that a model wrote: in a process of their own, with limits on time, memory and files.

This is a guard against accidents of generated code (endless loops, full memory, deleted files), on Linux enforced by
the kernel for files, signals and TCP too. It is no wall against a determined attacker: for that, run the evaluation in
a container.
"""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from multimdm._checks import require

_CHILD = Path(__file__).with_name("sandbox_child.py")
_DONE = b"done"


@dataclass(frozen=True)
class Limits:
    """What a program may use."""

    seconds: float = 10.0
    """Seconds on the clock; half as much again is granted to start the interpreter."""
    megabytes: int = 1024
    """The most memory that a program may take."""


@dataclass(frozen=True)
class Verdict:
    """How a program ended, and why."""

    passed: bool
    """Whether it ran to its last line without an exception."""
    reason: str
    """The last line of what it complained of; empty if it passed."""


USUAL = Limits()


def run_program(program: str, limits: Limits = USUAL) -> Verdict:
    """Run a Python program to its end.

    It sees the standard library, an empty directory that is its only place to write, no environment and no input. Other
    programs, processes and the network are closed to it. A program that leaves early, with whatever exit code, has not
    passed.
    """
    require(os.name == "posix", "generated code can be run on Linux and macOS only: its limits are those of POSIX")
    with tempfile.TemporaryDirectory(prefix="multimdm-program-") as place, tempfile.TemporaryFile() as complaints:
        reader, writer = os.pipe()
        try:
            return _run(program, limits, place, complaints, reader, writer)
        finally:
            os.close(reader)


def _run(program: str, limits: Limits, place: str, complaints: IO[bytes], reader: int, writer: int) -> Verdict:
    arguments = [place, str(writer), str(limits.seconds), str(limits.megabytes)]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_CHILD), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=complaints,  # a file, whose size is limited; a pipe would be read into our memory
        cwd=place,
        env={"PYTHONHASHSEED": "0", "PATH": ""},
        pass_fds=(writer,),
        start_new_session=True,
    )
    os.close(writer)
    try:
        process.communicate(program.encode(errors="replace"), timeout=1.5 * limits.seconds)
    except subprocess.TimeoutExpired:
        return Verdict(False, f"not finished after {limits.seconds:g} seconds")
    finally:
        _end(process)
    if os.read(reader, len(_DONE)) == _DONE:
        return Verdict(True, "")
    complaints.seek(0)
    lines = complaints.read().decode(errors="replace").strip().splitlines()
    return Verdict(False, lines[-1] if lines else "it left before its end")


def _end(process: subprocess.Popen) -> None:
    """End the program and whatever it may have started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
