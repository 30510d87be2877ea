"""Checkpoints are whole or not there; damaged ones are passed over; a disk that fills loses nothing."""

import json
import logging
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from multimdm import load
from multimdm._files import seal
from multimdm.pipeline import Model
from multimdm.training.checkpoints import Checkpoints, open_checkpoint
from support.runs import environment, tiny_job, write_recipe


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_job().model


def save(checkpoints: Checkpoints, model: Model, *steps: int) -> None:
    for step in steps:
        checkpoints.save(step, model, {"weights.x": torch.full((3,), float(step))}, {"seed": 1})


def test_the_last_few_are_kept(tmp_path, model):
    checkpoints = Checkpoints(tmp_path, keep=2)
    save(checkpoints, model, 5, 10, 100_000_000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000010", "step-100000000"]
    latest = checkpoints.latest()
    assert latest is not None
    assert (latest.step, latest.recipe) == (100_000_000, {"seed": 1})
    assert latest.tensors()["weights.x"].tolist() == [1e8] * 3
    assert load(latest.path / "model").network.config == model.network.config


def test_there_is_none_at_first(tmp_path):
    assert Checkpoints(tmp_path / "not yet", keep=1).latest() is None


def _truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def _flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("file", "damage", "complaint"),
    [
        ("training.safetensors", _truncate, "bytes instead of"),
        ("training.safetensors", _flip_a_bit, "sha256 differs"),
        ("training.safetensors", Path.unlink, "is missing"),
        ("model/model.safetensors", _flip_a_bit, "sha256 differs"),
        ("model/tokenizer.json", Path.unlink, "is missing"),
        ("training.json", _truncate, "is not JSON"),
        ("training.json", Path.unlink, "is missing"),
        ("training.json", lambda file: file.write_text("{}"), "its sha256 differs"),
    ],
)
def test_a_damaged_one_is_passed_over_with_a_warning(file, damage, complaint, tmp_path, model, caplog):
    checkpoints = Checkpoints(tmp_path, keep=3)
    save(checkpoints, model, 1, 2)
    damage(tmp_path / "step-00000002" / file)
    with caplog.at_level(logging.WARNING):
        latest = checkpoints.latest()
    assert latest is not None
    assert latest.step == 1
    assert complaint in caplog.text
    assert "step-00000002" in caplog.text
    with pytest.raises(ValueError, match=complaint):
        open_checkpoint(tmp_path / "step-00000002")


def test_a_flipped_bit_in_the_account_is_seen(tmp_path, model):
    """Wherever it is: in the step, the recipe, a hash, a name. What changes nothing may pass (1e-3 and 1E-3)."""
    save(Checkpoints(tmp_path, keep=1), model, 2)
    file = tmp_path / "step-00000002" / "training.json"
    content, whole = file.read_bytes(), open_checkpoint(file.parent)
    bits, passed = range(0, 8 * len(content), 11), 0
    for bit in bits:
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        with suppress(ValueError):
            assert open_checkpoint(file.parent) == whole, bit
            passed += 1
    assert passed < 0.01 * len(bits)


def test_an_account_without_its_sha256_is_not_believed(tmp_path, model):
    checkpoints = Checkpoints(tmp_path, keep=1)
    save(checkpoints, model, 2)
    file = tmp_path / "step-00000002" / "training.json"
    about = json.loads(file.read_text())
    del about["sha256"]
    file.write_text(json.dumps(about))
    with pytest.raises(ValueError, match="its sha256 differs"):
        open_checkpoint(file.parent)
    assert checkpoints.latest() is None


def test_an_account_that_lacks_what_it_must_tell_is_none(tmp_path, model):
    save(Checkpoints(tmp_path, keep=1), model, 2)
    file = tmp_path / "step-00000002" / "training.json"
    about = {**json.loads(file.read_text()), "files": {"training.safetensors": None}}
    file.write_text(json.dumps({**about, "sha256": seal(about)}))
    with pytest.raises(ValueError, match="is not the account of a checkpoint"):
        open_checkpoint(file.parent)


def test_later_ones_are_set_aside_and_do_not_count(tmp_path, model, caplog):
    """Damaged ones, or those of a branch that was left: what is saved next must be kept."""
    checkpoints = Checkpoints(tmp_path, keep=2)
    save(checkpoints, model, 40, 50)
    for name in ("step-00000040", "step-00000050"):
        _truncate(tmp_path / name / "training.safetensors")
    assert checkpoints.latest() is None
    checkpoints.set_aside_after(0)
    save(checkpoints, model, 10)
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.step == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "aside-step-00000040",
        "aside-step-00000050",
        "step-00000010",
    ]
    assert "it is now" in caplog.text


def test_what_is_no_checkpoint_is_left_alone(tmp_path, model):
    (tmp_path / "step-notes").mkdir()
    (tmp_path / "step-00000009").write_text("a file")
    checkpoints = Checkpoints(tmp_path, keep=1)
    save(checkpoints, model, 1, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"step-notes", "step-00000009", "step-00000002"}


def test_a_failed_save_names_the_last_good_one_and_leaves_no_debris(tmp_path, model, monkeypatch):
    checkpoints = Checkpoints(tmp_path, keep=1)
    save(checkpoints, model, 1)

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("multimdm.training.checkpoints.write_safetensors", no_space)
    with pytest.raises(OSError, match=r"step 2 .*No space left.* the last good one is .*step-00000001"):
        save(checkpoints, model, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_disk_that_fills_while_saving(tmp_path):
    """In a real process whose files may not grow beyond a limit: what it has saved before stays good."""
    recipe = write_recipe(tmp_path / "tiny.yaml")
    arguments = ["pretrain", str(recipe), "--out", str(tmp_path / "run"), "--log.checkpoint-every", "2"]
    command = [sys.executable, "-m", "multimdm", *arguments]
    assert subprocess.run([*command, "--train.steps", "2"], env=environment(), capture_output=True).returncode == 0
    size = (tmp_path / "run" / "checkpoints" / "step-00000002" / "training.safetensors").stat().st_size

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1000, size - 1000))

    other = [*command[:-3], str(tmp_path / "other"), "--log.checkpoint-every", "2"]
    full = subprocess.run(other, env=environment(), capture_output=True, text=True, preexec_fn=limit)
    assert full.returncode == 2, full.stderr
    assert "could not save the checkpoint of step 2" in full.stderr
    assert "there is none yet" in full.stderr
    assert list((tmp_path / "other" / "checkpoints").iterdir()) == []
    records = (tmp_path / "other" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in records] == ["start", *("train", "cost", "times") * 2]
