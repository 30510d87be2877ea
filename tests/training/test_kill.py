"""kill -9 at any moment: the run goes on and ends bit for bit as if nothing had happened. Real processes."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.runs import environment, finish, metrics, pretraining, start, weights

STEPS = {"train": {"steps": 40}, "log": {"checkpoint_every": 2, "every": 2, "validate_every": 20}}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    finish(start(pretraining(folder, **STEPS)))
    return folder / "run"


def _same(out: Path, reference: Path) -> None:
    assert weights(out) == weights(reference)
    for kind in ("train", "valid"):
        assert metrics(out, kind) == metrics(reference, kind)


def test_killed_at_random_moments(tmp_path, uninterrupted):
    arguments = pretraining(tmp_path, **STEPS)
    moments, kills = random.Random(0), 0
    for _ in range(3):
        process = start(arguments)
        before = _newest(tmp_path / "run")
        while process.poll() is None and _newest(tmp_path / "run") == before:
            time.sleep(0.01)  # it has begun to train in earnest
        time.sleep(moments.uniform(0, 0.2))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        process.communicate()
    assert kills > 0
    finish(start(arguments))
    _same(tmp_path / "run", uninterrupted)


KILL_IN_SAVE = """
import os, signal, sys
from pathlib import Path
from multimdm.cli.main import main
from multimdm.training import checkpoints

where, count = sys.argv[1], int(sys.argv[2])
calls = 0

def die_at(function):
    def wrapped(*args, **kwargs):
        global calls
        if "run/checkpoints" in str(args):
            calls += 1
            if calls == count:
                if where == "half":
                    Path(args[1]).write_bytes(b"half of a file")
                os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return wrapped

if where == "rename":
    Path.rename = die_at(Path.rename)
elif where == "remove":
    checkpoints.shutil.rmtree = die_at(checkpoints.shutil.rmtree)
else:
    checkpoints.write_safetensors = die_at(checkpoints.write_safetensors)
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.parametrize(("where", "count"), [("half", 3), ("rename", 4), ("rename", 5), ("remove", 2)])
def test_killed_during_a_save(where, count, tmp_path, uninterrupted):
    """While a file is half written, before a finished directory gets its name, while an old one is removed."""
    arguments = pretraining(tmp_path, **STEPS)
    killed = subprocess.run(
        [sys.executable, "-c", KILL_IN_SAVE, where, str(count), *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    finish(start(arguments))
    _same(tmp_path / "run", uninterrupted)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-00000038", "step-00000040"]  # and no debris


def _newest(out: Path) -> str:
    folder = out / "checkpoints"
    names = [path.name for path in folder.iterdir() if path.name.startswith("step-")] if folder.is_dir() else []
    return max(names, default="")
