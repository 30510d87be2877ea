"""A short form of benchmarks/torture.py, in processes of its own; and that it sees what is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.benchmark_scripts import PLACE, benchmark
from support.runs import environment

TORMENTS = ["--kinds", "save", "prepare", "flip", "full"]
TRUSTING = """
import json, sys

sys.path.insert(0, sys.argv.pop(1))
import torture
from multimdm.training import checkpoints

def trusting(path):
    about = json.loads((path / "training.json").read_text(errors="replace"))
    return checkpoints.Checkpoint(path, about["step"], about["recipe"], about["data"], about["starts"])

checkpoints.open_checkpoint = trusting
sys.exit(torture.main())
"""
"""Believes every checkpoint."""


def _run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *command], env=environment(), capture_output=True, text=True, timeout=600, check=False
    )


@pytest.fixture(scope="module")
def tortured(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess]:
    out = tmp_path_factory.mktemp("torture") / "out"
    return out, _run(str(PLACE / "torture.py"), "--runs", "9", *TORMENTS, "--seed", "1", "--out", str(out))


def test_nothing_is_lost(tortured):
    out, result = tortured
    assert result.returncode == 0, result.stdout + result.stderr
    runs = json.loads((out / "torture.json").read_text())["runs"]
    assert [one["kind"] for one in runs] == ["save", "prepare", "flip", "save", "full"]
    assert all(one["kills"] for one in runs if one["kind"] != "full")
    assert "is damaged and is passed over" in runs[2]["told"]
    assert "5 runs" in result.stdout
    assert "0 failed" in result.stdout
    assert not list(out.glob("run-*"))


def test_it_goes_on_and_sees_a_checkpoint_that_is_believed(tortured):
    """A mutant of ours that does not compare what it reads with what was written; what is in the record stays."""
    out, _ = tortured
    before = json.loads((out / "torture.json").read_text())["runs"]
    result = _run("-c", TRUSTING, str(PLACE), "--runs", "15", "--kinds", "flip", "--seed", "1", "--out", str(out))
    assert result.returncode == 1, result.stdout + result.stderr
    assert "run 14 (flip, train):" in result.stdout
    *kept, new = json.loads((out / "torture.json").read_text())["runs"]
    assert kept == before
    assert new["number"] == 14


def test_a_record_of_another_seed_is_refused(tmp_path):
    torture = benchmark("torture")
    (tmp_path / "torture.json").write_text('{"seed": 1, "runs": []}')
    with pytest.raises(ValueError, match="is of --seed 1, not 2"):
        torture.Torture(tmp_path, 2)


def test_it_sees_what_is_left_over_missing_or_other(tmp_path):
    torture = benchmark("torture_leavings")
    out = tmp_path / "out"
    (out / "model").mkdir(parents=True)
    (out / "model" / "a").write_text("1")
    (out / "metrics.jsonl").write_text('{"kind": "train", "step": 1, "loss": 2.0, "seconds": 1.5}\n')
    expected = torture.leavings(out)
    (out / "metrics.jsonl").write_text('{"kind": "train", "step": 1, "loss": 2.0, "seconds": 7.5}\n')
    assert torture.difference(out, expected) == ""
    (out / "metrics.jsonl").write_text('{"kind": "train", "step": 1, "loss": 2.5, "seconds": 1.5}\n')
    assert torture.difference(out, expected) == "metrics.jsonl differs"
    assert torture.difference(out, {**expected, "b": ""}, allowed="metrics") == "b is missing"
    (tmp_path / ".out.partial-me-1").mkdir()
    assert torture.difference(out, torture.leavings(out) | {"c": ""}).startswith("c is missing")
    assert torture.difference(out, expected) == ".out.partial-me-1 is left over"
