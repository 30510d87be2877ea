import csv
import json
import os
import subprocess
import sys

import pytest

from multimdm.cli.main import main
from multimdm.data.tales import tales_tokenizer
from multimdm.pipeline import Model, load
from multimdm.process import Uniform
from multimdm.samplers import SamplingAdvice
from support.tiny_models import (
    TALES,
    causal_tales_model,
    shown_tales_model,
    tales_model,
    tiny_dit,
    word_model,
    word_tokenizer,
)


@pytest.fixture
def models(tmp_path):
    for name, masks in (("one", 1), ("three", 3)):
        tales_model(num_masks=masks).save(tmp_path / name / "model")
    return [str(tmp_path / name / "model") for name in ("one", "three")]


@pytest.fixture
def calls(monkeypatch):
    """Every call of `Model.sample`."""
    asked, original = [], Model.sample
    monkeypatch.setattr(Model, "sample", lambda self, **named: asked.append(named) or original(self, **named))
    return asked


def few(tmp_path) -> list[str]:
    return ["--steps", "1", "2", "--temperatures", "0.7", "1.3", "--num", "6", "--out", str(tmp_path / "out")]


def test_everything_is_written_once(models, tmp_path, calls, capsys):
    assert main(["pareto", *models, *few(tmp_path)]) == 0
    out = tmp_path / "out"
    names = {path.name for path in out.iterdir()}
    assert names == {
        *("pareto-K1.png", "pareto-K2.png", "pareto.csv", "tables.md", "entropy-aligned.csv"),
        *("temperature-aligned.csv", "results.json", "report.html", "points"),
    }
    for K in (1, 2):
        assert (out / f"pareto-K{K}.png").read_bytes().startswith(b"\x89PNG")
    with open(out / "pareto.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    # tau = 1 is always measured, for the temperature-aligned table
    grid = {(label, K, tau) for label in ("one", "three") for K in ("1", "2") for tau in ("0.7", "1.0", "1.3")}
    assert {(row["model"], row["steps"], row["temperature"]) for row in rows} == grid
    assert all(float(row["gen_ppl_low"]) <= float(row["gen_ppl"]) <= float(row["gen_ppl_high"]) for row in rows)
    tables = (out / "tables.md").read_text(encoding="utf-8")
    assert "### Entropy-aligned" in tables
    assert "### Temperature-aligned" in tables
    assert tables.strip() in capsys.readouterr().out
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "http:" not in page
    assert "https:" not in page

    files = {name: (out / name).read_bytes() for name in names if name != "points"}
    drawn = len(calls)
    assert main(["pareto", *models, *few(tmp_path)]) == 0
    assert len(calls) == drawn  # nothing is sampled again
    assert {name: (out / name).read_bytes() for name in files} == files


def test_every_model_follows_its_own_advice(models, tmp_path):
    shown_tales_model(SamplingAdvice(order="rewrite", temperature=0)).save(tmp_path / "advised")
    options = ["--steps", "2", "--temperatures", "0.7", "--num", "4", "--align-entropy", "none"]
    assert main(["pareto", models[0], str(tmp_path / "advised"), *options, "--out", str(tmp_path / "out")]) == 0
    plain, advised = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [one["drawing"]["law"]["order"] for one in (plain, advised)] == ["ancestral", "rewrite"]
    assert [m["temperature"] for m in plain["measurements"]] == [0.7, 1.0]
    assert [m["temperature"] for m in advised["measurements"]] == [0.0, 0.7, 1.0]


def test_an_interrupted_run_goes_on(models, tmp_path, calls, monkeypatch):
    counted = Model.sample

    def stop(self, **named):
        if len(calls) == 5:
            raise KeyboardInterrupt
        return counted(self, **named)

    monkeypatch.setattr(Model, "sample", stop)
    arguments = ["pareto", *models, *few(tmp_path), "--align-entropy", "none"]
    assert main(arguments) == 130
    finished = len(list((tmp_path / "out" / "points").iterdir()))
    monkeypatch.setattr(Model, "sample", counted)
    assert main(arguments) == 0
    # For each of two models and two K: three temperatures and a trajectory. Five were done; none is done twice.
    assert len(calls) == 2 * 2 * 4
    assert finished == 5 + 1  # and the figures of real text
    assert not (tmp_path / "out" / "entropy-aligned.csv").exists()


def test_an_autoregressive_model_among_others(models, tmp_path, capsys):
    causal_tales_model().save(tmp_path / "ar")
    arguments = ["--steps", "1", "2", "--temperatures", "1", "--num", "2", "--out", str(tmp_path / "out")]
    assert main(["pareto", models[0], str(tmp_path / "ar"), *arguments, "--align-entropy", "2.5"]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert [m["nfe"] for m in results[1]["measurements"]] == [48, 48]
    tables = capsys.readouterr().out
    assert tables.count("(48 calls)") == 12  # two tables of GenPPL and four of distances, of two K
    assert all("**" not in line for line in tables.splitlines() if line.startswith("| ar"))
    with open(tmp_path / "out" / "temperature-aligned.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["steps"], row["nfe"]) for row in rows] == [
        ("one", "1", "1"),
        ("one", "2", "2"),
        ("ar", "1", "48"),
        ("ar", "2", "48"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps"], "--steps and --temperatures must have a number each"),
        (["--steps", "0"], "steps must be"),
        (["--names", "a"], "--names must be as many as checkpoints, 2; got 1"),
        (["--names", "a", "a"], "models must have different names"),
        (["--judge", "none"], "there is no front without GenPPL"),
        (["--align-entropy", "-1"], "--align-entropy must be"),
        (["--device", "cuda:x"], "device must be auto, cpu, mps, cuda or cuda:NUMBER; got 'cuda:x'"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(arguments, message, models, tmp_path, calls, capsys):
    out = tmp_path / "out"
    assert main(["pareto", *models, *arguments, "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert calls == []
    assert not out.exists()


def test_models_that_do_not_fit_are_refused(models, tmp_path, calls, capsys):
    word_model(word_tokenizer(["a", "b"])).save(tmp_path / "words")
    assert main(["pareto", *models, str(tmp_path / "words"), "--judge", "tales", *few(tmp_path)]) == 2
    assert "tales can be used only with a model of Tales" in capsys.readouterr().err
    tales_model(length=60).save(tmp_path / "longer")
    assert main(["pareto", models[0], str(tmp_path / "longer"), *few(tmp_path)]) == 2
    assert "give --length (the networks' are: one 48, longer 60)" in capsys.readouterr().err
    word_model(word_tokenizer(["a", "b", "c"]), length=8).save(tmp_path / "others")
    causal = word_model(word_tokenizer(["a", "b"]), length=8, causal=True)
    causal.save(tmp_path / "judge")
    arguments = ["--judge", str(tmp_path / "judge"), "--align-entropy", "1"]
    assert main(["pareto", str(tmp_path / "words"), str(tmp_path / "others"), *arguments, *few(tmp_path)]) == 2
    assert "models with different tokenizers cannot be compared" in capsys.readouterr().err
    assert calls == []


def test_settings_that_do_not_fit_a_model_are_refused_before_the_others_are_measured(models, tmp_path, calls, capsys):
    V = TALES.vocab_size
    Model(tiny_dit(V, 0, 48), Uniform(V), tales_tokenizer(TALES)).save(tmp_path / "duo")
    arguments = ["--order", "confidence", *few(tmp_path)]
    assert main(["pareto", *models, str(tmp_path / "duo"), *arguments]) == 2
    assert "duo: process must have masks for order='confidence'; got Uniform" in capsys.readouterr().err
    assert main(["pareto", *models, str(tmp_path / "nowhere"), *few(tmp_path)]) == 2
    assert "is not a checkpoint directory" in capsys.readouterr().err
    assert calls == []
    assert not (tmp_path / "out").exists()


def test_no_file_of_an_earlier_run_stays(models, tmp_path):
    out = tmp_path / "out"
    common = ["--num", "2", "--temperatures", "1", "--out", str(out)]
    assert main(["pareto", models[0], "--steps", "1", "2", "--align-entropy", "2.5", *common]) == 0
    (out / "notes.txt").write_text("mine")
    assert main(["pareto", models[0], "--steps", "1", "--align-entropy", "none", *common]) == 0
    assert {path.name for path in out.iterdir()} == {
        *("pareto-K1.png", "pareto.csv", "tables.md", "temperature-aligned.csv", "results.json", "report.html"),
        *("points", "notes.txt"),
    }


def test_models_share_one_judge(models, tmp_path, monkeypatch):
    causal_tales_model().save(tmp_path / "judge")
    loaded = []
    monkeypatch.setattr(
        "multimdm.evaluation.language_models.load", lambda path, device: loaded.append(path) or load(path, device)
    )
    arguments = ["--steps", "1", "--num", "2", "--temperatures", "1", "--align-entropy", "none"]
    arguments += ["--judge", str(tmp_path / "judge"), "--out", str(tmp_path / "out")]
    assert main(["pareto", *models, *arguments]) == 0
    assert loaded == [str(tmp_path / "judge")]


def test_names_that_pictures_could_take_for_something_else(models, tmp_path):
    arguments = ["--steps", "1", "--num", "2", "--temperatures", "1", "--align-entropy", "none"]
    assert main(["pareto", *models, "--names", "$x_{", "_y", *arguments, "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "pareto-K1.png").exists()


def test_models_can_compute_in_another_precision(models, tmp_path):
    arguments = ["--steps", "1", "--num", "2", "--temperatures", "1", "--align-entropy", "none"]
    fingerprints = []
    for precision in ("auto", "bfloat16"):
        out = tmp_path / precision
        assert main(["pareto", models[0], *arguments, "--precision", precision, "--out", str(out)]) == 0
        (found,) = json.loads((out / "results.json").read_text())
        fingerprints.append(found["fingerprint"])
    assert fingerprints[1] == f"{fingerprints[0]}, bfloat16"


def test_pareto_needs_a_checkpoint(tmp_path, capsys):
    assert main(["pareto", "--out", str(tmp_path / "out")]) == 2
    assert "give one or more checkpoints" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["pareto", "--help"]])
def test_a_reader_that_leaves_is_no_error(arguments):
    """As `multimdm pareto --help | head -1`: the pipe is closed before anything is written to it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "multimdm", *arguments],
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 141
