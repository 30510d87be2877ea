"""From a text file to samples of few calls, in one command, which does nothing twice."""

import json
import random
from pathlib import Path

import pytest

from multimdm.cli.main import main
from multimdm.own_text import budget as budgets
from multimdm.own_text.budget import Request, budget
from multimdm.pipeline import load

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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["book.txt", "--longer", "0"], "--longer must be above 0; got 0.0"),
        (["book.txt", "--fast", "--size", "gpu"], "--fast is for --size laptop"),
        (["nowhere.txt"], "nowhere.txt"),
    ],
)
def test_mistakes_are_told_before_any_work(book, options, message, capsys):
    assert main(["train-text", *options]) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists() or not list(Path("runs").rglob("model"))
