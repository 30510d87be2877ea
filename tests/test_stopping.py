"""What commands that listen do when they are asked to stop, once and twice. Real processes, which import no torch."""

import signal
import subprocess
import sys

import pytest

WORK = {
    "listener": """
with Listener("the piece at hand is finished and kept") as listener:
    again = ask()
    if again:
        print("still here", flush=True)
    assert listener.asked
    raise listener.leaving("kept 3 of 5 pieces")
""",
    "terminable": """
with terminable():
    try:
        ask()
    finally:
        print("put away", flush=True)
""",
}
PROGRAM = """
import os, signal, sys, time
from multimdm._stopping import Listener, ToldInterrupt, terminable

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts the tests in the background ignores it
number, pause = int(sys.argv[1]), float(sys.argv[2])

def ask():
    os.kill(os.getpid(), number)
    if pause >= 0:
        time.sleep(pause)
        os.kill(os.getpid(), number)
    return pause >= 0

try:
    exec(sys.argv[3])
except ToldInterrupt:
    sys.exit(130)
"""
FIRST = "stopping: the piece at hand is finished and kept first; a second signal stops at once"


def asked(work: str, number: int, pause: float = -1.0) -> subprocess.CompletedProcess:
    """The work, sent a signal and perhaps a second one some seconds later."""
    command = [sys.executable, "-c", PROGRAM, str(int(number)), str(pause), WORK[work]]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_work_comes_to_its_place_and_says_so(number):
    done = asked("listener", number)
    assert done.returncode == 128 + number
    assert done.stderr.split("\n") == ["", FIRST, "kept 3 of 5 pieces; the same command goes on", ""]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_second_signal_stops_at_once(number):
    done = asked("listener", number, pause=1.2)
    assert done.returncode == -number
    assert FIRST in done.stderr
    assert "the same command goes on" not in done.stderr
    assert done.stdout == ""


def test_signals_at_one_moment_are_one():
    done = asked("listener", signal.SIGTERM, pause=0.0)
    assert done.returncode == 143
    assert done.stdout == "still here\n"


def test_where_nothing_is_waited_for_everything_is_put_away():
    done = asked("terminable", signal.SIGTERM)
    assert done.stdout == "put away\n"
    assert "TerminatedError" in done.stderr  # which the table of commands turns into a sentence and 143
