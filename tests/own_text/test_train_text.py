"""From a text file to samples of few calls, in one command, which does nothing twice."""

import json
import random
import signal
from pathlib import Path

import pytest

from multimdm.cli.main import main
from multimdm.data.manifest import Manifest
from multimdm.own_text import budget as budgets
from multimdm.own_text import running
from multimdm.own_text.budget import Request, budget
from multimdm.pipeline import load
from multimdm.training import loop
from support.runs import asking, weights

WORDS = ["the", "baker", "sold", "three", "old", "lamps", "behind", "a", "green", "mill", "and", "nobody", "saw", "it"]


@pytest.fixture
def book(tmp_path, monkeypatch) -> Path:
    """A corpus, and a network so small that training takes moments."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(3)
    lines = (" ".join(draw.choices(WORDS, k=draw.randint(6, 14))) + "." for _ in range(300))
    Path("book.txt").write_text("\n".join(lines), encoding="utf-8")
    small = {"network.hidden_dim": 16, "network.num_blocks": 1, "network.num_heads": 2}
    monkeypatch.setitem(budgets.FAST, "ar", {**budgets.FAST["ar"], **small, "train.steps": 6})
    monkeypatch.setitem(budgets.FAST, "quantile", {"train.steps": 8})
    monkeypatch.setitem(budgets.FAST_BOTH, "train.batch_size", 2)
    return Path("book.txt")


TEXT = ["book.txt", "--fast", "--tokenizer", "chars", "--length", "32"]


def test_from_a_file_to_samples(book, capsys):
    assert main(["train-text", *TEXT]) == 0
    told = capsys.readouterr()
    assert "train-text: book.txt; everything is kept in runs/book-fast" in told.err
    assert "left for all stages" in told.err
    for part in ("1 network call:", "2 network calls:", "4 network calls:", "multimdm sample runs/book-fast --steps 2"):
        assert part in told.out
    assert "gives held-out text a perplexity of" in told.out
    names = [step["name"] for step in load("runs/book-fast").lineage]
    assert names == ["teacher", "book-fast"]
    records = [json.loads(line) for line in Path("runs/book-fast/teacher/metrics.jsonl").read_text().splitlines()]
    valid = [record for record in records if record["kind"] == "valid"]
    assert valid
    assert all("negative_log_likelihood" in record and "nelbo" not in record for record in valid)

    weights = Path("runs/book-fast/model/model.safetensors").stat().st_mtime_ns
    assert main(["train-text", *TEXT]) == 0  # nothing is left to do
    assert "4 network calls:" in capsys.readouterr().out
    assert Path("runs/book-fast/model/model.safetensors").stat().st_mtime_ns == weights
    assert main(["train-text", *TEXT, "--longer", "2"]) == 2
    assert "was trained with other settings" in capsys.readouterr().err


def test_stopped_in_either_stage_the_same_command_goes_on(book, monkeypatch, capfd):
    """Ctrl-C in the teacher's third step, SIGTERM in the model's fourth: the weights of a run that nobody stopped."""
    plain = loop._Run._one_step

    def stopping(name, step, number):
        asked = asking(plain, number)
        return lambda run: (asked if (run.job.name, run.step) == (name, step) else plain)(run)

    for name, step, number, code in (("teacher", 2, signal.SIGINT, 130), ("book-fast", 3, signal.SIGTERM, 143)):
        monkeypatch.setattr(loop._Run, "_one_step", stopping(name, step, number))
        assert _left_with(["train-text", *TEXT]) == code
        assert f"{name}: saved step {step + 1}; the same command goes on" in capfd.readouterr().err
    monkeypatch.setattr(loop._Run, "_one_step", plain)
    assert main(["train-text", *TEXT]) == 0
    told = capfd.readouterr()
    assert "book-fast: going on from runs/book-fast/checkpoints/step-00000004" in told.err
    assert "4 network calls:" in told.out
    assert main(["train-text", *TEXT, "--out", "whole/book-fast"]) == 0
    for run in ("", "teacher"):
        assert weights(Path("runs/book-fast", run)) == weights(Path("whole/book-fast", run))


def test_a_run_that_is_moved_goes_on(book, monkeypatch, capfd):
    """With its teacher, from which the model begins, and its data, under which lie the teacher's numbers."""
    plain = loop._Run._one_step
    asked = asking(plain, signal.SIGINT)

    def stopping(run):
        return (asked if (run.job.name, run.step) == ("book-fast", 3) else plain)(run)

    monkeypatch.setattr(loop._Run, "_one_step", stopping)
    assert main(["train-text", *TEXT]) == 130
    Path("elsewhere").mkdir()
    Path("runs/book-fast").rename("elsewhere/book-fast")
    monkeypatch.setattr(loop._Run, "_one_step", plain)
    capfd.readouterr()
    assert main(["train-text", *TEXT, "--out", "elsewhere/book-fast"]) == 0
    told = capfd.readouterr()
    assert "book-fast: going on from elsewhere/book-fast/checkpoints/step-00000004" in told.err
    assert "the teacher: an autoregressive model" not in told.err
    assert "4 network calls:" in told.out
    Path("elsewhere/book-fast").rename("elsewhere/moved-again")
    assert main(["train-text", *TEXT, "--out", "elsewhere/moved-again"]) == 0
    assert "steps of" not in capfd.readouterr().err, "nothing is left to do"


def _left_with(command):
    try:
        return main(command)
    except SystemExit as left:
        return left.code


def test_names_of_files_are_not_obeyed(book, capfd):
    """A file that someone else named is told of, and turns neither colour nor direction."""
    name = "\x1b[31mbo\u202eok"
    book.rename(f"{name}.txt")
    run = f"runs/{name}-fast"
    for command in (
        ["prepare", f"{name}.txt", "--tokenizer", "chars", "--out", f"data/{name}"],
        ["train-text", f"{name}.txt", *TEXT[1:]],
        ["pretrain", "text-ar", "--data.path", f"{run}/data", "--out", f"{run}/teacher"],
        ["info", run],
        ["sample", run, "--num", "1", "--out", f"data/{name}.txt"],
        ["evaluate", run, "--judge", "none", "--steps", "1", "--num", "1", "--out", f"data/{name}-measured"],
    ):
        assert main(command) == (2 if command[0] == "pretrain" else 0)  # that run has other settings
        printed = "".join(capfd.readouterr())
        assert r"\x1b[31mbo\u202eok" in printed, command
        assert not set(printed) & set("\x1b\u202e"), command


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_settings_follow_from_prepared_data(book, layout, capsys):
    out = f"data/{layout}"
    assert (
        main(["prepare", "book.txt", "--tokenizer", "chars", "--length", "64", "--layout", layout, "--out", out]) == 0
    )
    assert main(["train-text", out, "--fast", "--longer", "0.2", "--out", "runs/mine"]) == 0
    config = json.loads(Path("runs/mine/teacher/model/config.json").read_text(encoding="utf-8"))
    assert config["network"]["absolute_positions"] == (layout == "padded")
    assert "nothing will be validated" in capsys.readouterr().err
    assert main(["train-text", out, "--fast", "--length", "32"]) == 2
    assert "--length 32 is for text that is not prepared yet" in capsys.readouterr().err


def test_little_text_has_few_epochs(book):
    assert main(["prepare", "book.txt", "--tokenizer", "chars", "--length", "64", "--out", "data/book"]) == 0
    made = budget(Request(Path("data/book"), Path("runs/book")))
    per_epoch = len(made.notes) and made.teacher.train.steps / budgets.TEACHER_EPOCHS
    assert made.teacher.train.batch_size == 64  # as many tokens as 32 sequences of 128
    assert 0 < per_epoch < 6
    assert "would learn by heart" in made.notes[0]
    assert made.cells_per_text == pytest.approx(1 / budgets.READER_EPOCHS, rel=0.02)
    short = Request(Path("data/book"), Path("runs/book"), longer=1e-9)
    assert budget(short).cells_per_text == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["book.txt", "--longer", "0"], "--longer must be above 0; got 0.0"),
        (["book.txt", "--fast", "--size", "gpu"], "--fast is for --size laptop"),
        (["nowhere.txt"], "nowhere.txt"),
        (["line.txt"], "--valid-fraction 0.05 takes one in 20, and there is only 1 document; break its lines"),
    ],
)
def test_mistakes_are_told_before_any_work(book, options, message, capsys):
    Path("line.txt").write_text("a novel on one line", encoding="utf-8")
    assert main(["train-text", *options]) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_text_on_one_line_is_all_trained_on(book, capsys, monkeypatch):
    Path("line.txt").write_text(book.read_text(encoding="utf-8").replace("\n", " "), encoding="utf-8")
    monkeypatch.setattr(running, "run", lambda *_: (_ for _ in ()).throw(ValueError("enough")))
    assert main(["train-text", "line.txt", *TEXT[1:], "--valid-fraction", "0"]) == 2
    assert "enough" in capsys.readouterr().err
    assert Manifest.read(Path("runs/line-fast/data")).counts.documents == 1


@pytest.mark.parametrize("command", ["info", "sample"])
@pytest.mark.parametrize("held_out", [[], ["--valid-fraction", "0.1"]])
def test_prepared_data_are_no_checkpoint(command, held_out, book, capsys):
    assert main(["prepare", "book.txt", "--tokenizer", "chars", *held_out, "--out", "data/book"]) == 0
    assert main([command, "data/book"]) == 2
    told = capsys.readouterr().err
    assert "data/book is prepared data, not a checkpoint; multimdm train-text data/book makes a model of it" in told
