"""Locks between processes."""

import subprocess
import sys

import pytest

from multimdm.reproduce.workers import locked

HOLD = """
import sys, time
from pathlib import Path
from multimdm.reproduce.workers import locked
with locked(Path(sys.argv[1])) as free:
    print(free, flush=True)
    time.sleep(60)
"""


def test_one_holds_it(tmp_path):
    path = tmp_path / "new" / "stage.lock"
    with locked(path) as mine:
        with locked(path) as other:
            assert (mine, other) == (True, False)
        with locked(path) as again:  # who did not get it has not freed it
            assert not again
    with locked(path) as later:
        assert later


def test_a_fault_inside_frees_it(tmp_path):
    path = tmp_path / "stage.lock"
    with pytest.raises(TimeoutError, match="of the work"), locked(path):
        raise TimeoutError("of the work")
    with locked(path) as free:
        assert free


def test_a_process_that_is_killed_lets_go(tmp_path):
    path = tmp_path / "stage.lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        with locked(path) as free:
            assert not free
        process.kill()
    with locked(path) as free:
        assert free
