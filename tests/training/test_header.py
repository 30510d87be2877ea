"""What a run says before it begins, and how long it will take."""

import re

import pytest

from multimdm.cli.main import main
from multimdm.training import building
from multimdm.training.display import Display
from multimdm.training.loop import train
from multimdm.training.reporting import number_of
from support.runs import tiny_job, write_recipe


def test_a_run_opens_with_parameters_data_device_and_precision(tmp_path, capsys):
    job = tiny_job("mine", train={"steps": 2})
    train(job, tmp_path / "run")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("mine: ")]
    size = sum(x.numel() for x in job.model.network.parameters()) / 1e6
    assert lines[:3] == [
        f"mine: multi-mask diffusion, M = 5, rho = 1; 2 blocks of width 16, {size:.2f} million parameters",
        "mine: Tales, new stories of 48 tokens without end; 2 steps of 8 are 16 texts, 768 tokens",
        "mine: on cpu, in float32",
    ]
    assert "nothing will be validated" not in "".join(lines)


@pytest.mark.parametrize("held_out", [True, False])
def test_epochs_and_what_is_not_validated(held_out, tmp_path, capsys):
    text, data = tmp_path / "lines.txt", tmp_path / "data"
    text.write_text("".join(f"a dog number {i} runs over the grass\n" for i in range(100)))
    prepare = ["prepare", str(text), "--tokenizer", "bpe:300", "--layout", "padded", "--length", "32"]
    assert main([*prepare, *(["--valid-last", "20"] if held_out else []), "--out", str(data)]) == 0
    capsys.readouterr()
    train(tiny_job("mine", data={"kind": "prepared", "path": str(data)}, train={"steps": 30}), tmp_path / "run")
    printed = capsys.readouterr().err
    size = 80 if held_out else 100
    found = re.search(rf"mine: {data}, {size} texts of 32 tokens, ([\d,]+) without padding; (.*)", printed)
    assert found is not None
    assert found.group(2) == f"30 steps of 8 are 240 texts, 7,680 tokens, {240 / size:.3g} epochs"
    assert (f"nothing will be validated: {data} has no held-out text" in printed) is not held_out


def test_large_numbers_of_epochs_are_written_out():
    assert [number_of(value) for value in (0.0123, 2.5, 999.4, 5000.0)] == ["0.0123", "2.5", "999", "5,000"]


def test_the_time_left_is_told_after_a_few_steps(capsys, monkeypatch):
    """The first step, which warms up, is not counted; a run that goes on counts from where it does."""
    now = 0.0
    monkeypatch.setattr("multimdm.training.display.time.monotonic", lambda: now)
    display = Display("mine", 100, 1100)
    for step, seconds in ((101, 60.0), (102, 2.0), (103, 2.0), (104, 2.0), (105, 2.0)):
        now += seconds
        display.advance(step)
    assert capsys.readouterr().err == "mine: 2 s per step, about 0:33:12 left for 996 steps\n"


def test_a_terminal_is_told_the_same(tmp_path, capsys, monkeypatch):
    """Between the frames of the bar, on lines that stay."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    train(tiny_job("mine", train={"steps": 8}), tmp_path / "run")
    printed = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", capsys.readouterr().err)
    lines = [line.strip() for line in re.split(r"[\r\n]+", printed)]
    for start in ("mine: multi-mask diffusion", "mine: Tales, new stories", "mine: on cpu, in float32", "mine: wrote "):
        assert sum(line.startswith(start) for line in lines) == 1, start
    assert any(re.fullmatch(r"mine: \S+ s per step, about 0:00:\d\d left for 4 steps", line) for line in lines)
    assert any(line.startswith("mine ") and "/8" in line for line in lines), "the bar"


def test_the_first_line_does_not_wait_for_data_and_network(tmp_path, capsys, monkeypatch):
    def stop(recipe, name):
        assert "pretrain" in capsys.readouterr().err
        raise ValueError("enough")

    monkeypatch.setitem(building.JOBS, "pretrain", stop)
    assert main(["pretrain", str(write_recipe(tmp_path / "tiny.yaml")), "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == "multimdm pretrain: enough\n"


@pytest.mark.parametrize(
    ("command", "recipe", "right"),
    [
        ("pretrain", "tales-multimdm-cont", "adapt"),
        ("pretrain", "tales-quantile", "couple"),
        ("adapt", "tales-mdlm", "pretrain"),
        ("couple", "tales-distill-gumbel", "distill"),
        ("distill", "tales-multimdm-cont", "adapt"),
    ],
)
def test_a_recipe_of_another_command_is_told_so(command, recipe, right, capsys):
    assert main([command, recipe]) == 2
    error = capsys.readouterr().err
    assert error == f"multimdm {command}: {recipe}: this is a recipe of {right}: multimdm {right} {recipe}\n"


def test_a_misspelt_key_is_still_a_misspelt_key(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text("system: mdlm\ntrain: {stpes: 5}\n")
    assert main(["pretrain", str(path)]) == 2
    assert "did you mean 'train.steps'?" in capsys.readouterr().err
