"""Asked to stop, a run saves the step that it is at, and goes on from it bit for bit. Real processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from multimdm import _stopping as stopping
from multimdm.training.engine import Signals
from support.runs import environment, finish, metrics, pretraining, start, tiny_job, weights

STEPS = {"train": {"steps": 14}, "log": {"checkpoint_every": 1000, "every": 1, "validate_every": 7}}
ASKED = """
import os, signal, sys, time
from multimdm.cli.main import main
from multimdm.training import loop

name, step, rank, again = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
real = loop._Run._one_step

def one_step(run):
    if run.step == step and os.environ.get("RANK", "0") == rank:
        os.kill(os.getpid(), getattr(signal, name))
        if again >= 0:
            time.sleep(again)
            os.kill(os.getpid(), getattr(signal, name))
            print("still here", flush=True)
    return real(run)

loop._Run._one_step = one_step
sys.exit(main(sys.argv[5:]))
"""


def asked(arguments: list[str], name: str, step: int, again: float = -1.0) -> subprocess.CompletedProcess:
    """A run that is sent a signal in the middle of a step, and perhaps a second one some seconds later."""
    command = [sys.executable, "-c", ASKED, name, str(step), "0", str(again), *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=240, check=False)


def saved(folder: Path) -> list[str]:
    place = folder / "run" / "checkpoints"
    return sorted(path.name for path in place.iterdir()) if place.is_dir() else []


def test_it_saves_the_step_and_goes_on_bit_for_bit(tmp_path):
    arguments = pretraining(tmp_path, **STEPS)
    for name, step, code in (("SIGTERM", 4, 143), ("SIGUSR1", 6, 138), ("SIGINT", 9, 130)):
        done = asked(arguments, name, step)
        assert done.returncode == code, done.stderr
        assert f"saved step {step + 1}; the same command goes on" in done.stderr
        assert saved(tmp_path)[-1] == f"step-{step + 1:08d}"
    finish(start(arguments))
    (tmp_path / "whole").mkdir()
    finish(start(pretraining(tmp_path / "whole", **STEPS)))
    assert weights(tmp_path / "run") == weights(tmp_path / "whole" / "run")
    for kind in ("train", "valid"):  # what was due after the saved step was not left out
        assert metrics(tmp_path / "run", kind) == metrics(tmp_path / "whole" / "run", kind)


def test_a_second_signal_stops_at_once(tmp_path):
    done = asked(pretraining(tmp_path, **STEPS), "SIGTERM", 4, again=1.2)
    assert done.returncode == -signal.SIGTERM
    assert "still here" not in done.stdout
    assert saved(tmp_path) == []


def test_signals_at_one_moment_are_one(tmp_path):
    """A scheduler signals every process, and a launcher hands its own on."""
    done = asked(pretraining(tmp_path, **STEPS), "SIGTERM", 4, again=0.0)
    assert done.returncode == 143, done.stderr
    assert saved(tmp_path) == ["step-00000005"]


def test_all_ranks_stop_at_the_step_at_which_one_was_asked(tmp_path):
    """The second of two ranks alone hears the signal; the first saves what all of them hold."""
    program = tmp_path / "asked.py"
    program.write_text(ASKED, encoding="utf-8")
    arguments = [*pretraining(tmp_path, **STEPS), "--train.strategy", "fsdp"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
    command += ["SIGTERM", "4", "1", "-1", *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=240, check=False)
    assert "saved step 5; the same command goes on" in done.stderr
    assert saved(tmp_path) == ["step-00000005"]
    assert "going on from" in finish(start(arguments, ranks=2))


def test_a_launcher_hands_its_signal_on(tmp_path):
    arguments = pretraining(tmp_path, **{**STEPS, "train": {"steps": 2000}})
    process = start(arguments, ranks=2)
    course = tmp_path / "run" / "metrics.jsonl"
    while process.poll() is None and not (course.exists() and '"train"' in course.read_text(encoding="utf-8")):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert "the same command goes on" in output
    (name,) = saved(tmp_path)
    assert metrics(tmp_path / "run")[-1]["step"] == int(name.removeprefix("step-"))


class OneOfTwo:
    """An engine whose other rank has heard a signal, or not."""

    ranks = 2

    def __init__(self, other: float) -> None:
        self.other = other

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor([*[10.0] * (len(x) - 1), self.other])


@pytest.mark.unchecked  # for an engine that is none
@pytest.mark.parametrize("other", [0.0, 1.0])
def test_a_request_travels_with_the_sums_of_the_step(other):
    with Signals() as listening:
        sums = listening.sum(OneOfTwo(other), torch.tensor([1.0, 2.0]))  # pyright: ignore[reportArgumentType]
    assert sums.tolist() == [11.0, 12.0]
    assert listening.stopping == bool(other)
    assert isinstance(listening.leaving(), SystemExit)


def test_what_listened_before_listens_again():
    before = {number: signal.getsignal(number) for number in stopping.ASKING}
    with Signals() as listening:
        assert all(signal.getsignal(number) == listening._hear for number in before)
    assert {number: signal.getsignal(number) for number in before} == before


def test_the_last_step_is_no_place_to_stop(tmp_path):
    """Nothing would be left to go on with."""
    from multimdm.training.loop import train

    job = tiny_job(train={"steps": 2})
    real = job.objective

    def asking(network, batch):
        if batch.step == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(network, batch)  # pyright: ignore[reportCallIssue]

    job.objective = asking  # pyright: ignore[reportAttributeAccessIssue]
    assert train(job, tmp_path / "run", quiet=True).model.is_dir()
