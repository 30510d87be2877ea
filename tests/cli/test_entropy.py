import csv

import pytest

from multimdm.cli.main import main


def test_study(tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    assert main(["entropy", "--masks", "2", "3", "--samples", "200", "--seed", "1", "--out", str(out)]) == 0
    assert sorted(p.name for p in out.iterdir()) == ["entropy.csv", "entropy.png"]
    with open(out / "entropy.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["time", "curve", "value", "standard_error"]
    assert {row["curve"] for row in rows} == {
        "uniform unconditioned",
        "uniform gumbel",
        "uniform gaussian",
        "masked unconditioned, once masked",
        "masked unconditioned, on average",
        "multimask M=2 unconditioned",
        "multimask M=2 gumbel",
        "multimask M=3 unconditioned",
        "multimask M=3 gumbel",
    }
    assert len({row["time"] for row in rows}) == 25
    assert "uniform gaussian" in capsys.readouterr().out


def test_forward(tmp_path):
    assert main(["entropy", "--forward", "--out", str(tmp_path)]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["forward.png"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--masks", "0"], "--masks must be from 1 to 100; got 0"),
        (["--masks", "101"], "got 101"),
        (["--masks", "2", "2"], "--masks must be one or more different numbers; got [2, 2]"),
        (["--samples", "1"], "--samples must be at least 2; got 1"),
        (["--seed", "-3"], "--seed must be from 0"),
        (["--forward", "--sentence", "one"], "--sentence must have 2 to 12 words; got 1"),
        (["--forward", "--masks", "0"], "--masks must be from 1 to 12; got 0"),
        (["--forward", "--masks", "2", "3"], "--masks must be one number with --forward; got [2, 3]"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(arguments, message, tmp_path, capsys):
    assert main(["entropy", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_out_is_a_file(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["entropy", "--out", str(tmp_path / "file")]) == 2
    assert "file" in capsys.readouterr().err


def test_the_seed_and_the_masks_are_heeded(tmp_path):
    def result(name: str, *arguments: str) -> bytes:
        out = tmp_path / name
        assert main(["entropy", "--samples", "100", "--out", str(out), *arguments]) == 0
        return next(p for p in out.iterdir() if p.suffix in (".csv",) or p.name == "forward.png").read_bytes()

    base = result("a", "--masks", "2", "--seed", "1")
    assert result("b", "--masks", "2", "--seed", "1") == base
    assert result("c", "--masks", "2", "--seed", "2") != base
    assert result("d", "--forward", "--masks", "2") != result("e", "--forward", "--masks", "5")
    result("f", "--forward", "--sentence", "x$_{$ incomprehensibilities")  # no mathematics, and a long word
