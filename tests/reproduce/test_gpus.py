"""Processes side by side take GPUs of their own, without any here."""

import subprocess
import sys
from contextlib import ExitStack

import pytest
import torch

from multimdm.reproduce.workers import claimed, gpu_names, own_gpu
from support.runs import environment


def test_each_takes_its_own_and_then_they_share(tmp_path):
    names = ["0", "1", "2"]
    with ExitStack() as others:
        taken = [others.enter_context(claimed(names, tmp_path)) for _ in range(7)]
    assert taken == [0, 1, 2, 0, 1, 2, 0]


def test_what_is_let_go_is_taken_again(tmp_path):
    with claimed(["0", "1"], tmp_path) as first:
        with claimed(["0", "1"], tmp_path) as second:
            assert (first, second) == (0, 1)
        with claimed(["0", "1"], tmp_path) as third:
            assert third == 1


def test_the_names_are_those_of_the_machine(tmp_path, monkeypatch):
    """Two processes that see different GPUs do not compete for the first of each."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 3")
    assert gpu_names() == ["2", "3"]
    with claimed(["0", "1"], tmp_path), claimed(gpu_names(), tmp_path) as number:
        assert number == 0
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert gpu_names() == ["0", "1"]


def test_a_killed_process_lets_go(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from multimdm.reproduce.workers import claimed\n"
        "with claimed(['0', '1'], Path(sys.argv[1])) as number:\n    print(number, flush=True); time.sleep(60)"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path)]
    other = subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "0\n"
    with claimed(["0", "1"], tmp_path) as number:
        assert number == 1
    other.kill()
    other.communicate()
    with claimed(["0", "1"], tmp_path) as number:
        assert number == 0


@pytest.mark.parametrize(
    ("seen", "launcher", "chosen"), [(2, False, [0]), (2, True, []), (1, False, []), (0, False, [])]
)
def test_one_is_chosen_where_there_is_a_choice(seen, launcher, chosen, tmp_path, monkeypatch):
    numbers: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: seen)
    monkeypatch.setattr(torch.cuda, "set_device", numbers.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("LOCAL_RANK", "1") if launcher else monkeypatch.delenv("LOCAL_RANK", raising=False)
    with own_gpu():
        assert numbers == chosen
