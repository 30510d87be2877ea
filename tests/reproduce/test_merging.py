"""Seeds of one study on machines that share no files, put together afterwards."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from multimdm.cli.main import main
from multimdm.report.reproduction_report import read_study, study_text, write_study
from multimdm.reproduce.results import merge, with_figures
from support.tiny_reproduction import SCALE, tiny_files, write_yaml

RESULTS = Path("out", "tiny", "results", "masks")


def run(folder: Path, *more: str) -> Path:
    """The results of two models."""
    folder.mkdir()
    spec, scale = tiny_files(folder, "MDLM", "MultiMDM")
    assert main(["reproduce", spec, "--scale", scale, "--out", str(folder / "out"), *more]) == 0
    return folder / RESULTS


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """Two seeds in one run, and each of them by itself."""
    folder = tmp_path_factory.mktemp("machines")
    return run(folder / "both", "--seeds", "2"), run(folder / "first"), run(folder / "second", "--first-seed", "1")


def without_minutes(text: str) -> str:
    """Of a table of budgets: the last column."""
    return re.sub(r"(\| (?:MDLM|MultiMDM) \| pretrain .*) \| [\d.]+ \|", r"\1 | |", text)


def test_seeds_begin_where_they_are_told_to(machines):
    _, first, second = machines
    assert [path.name for path in sorted((second.parents[1]).glob("seed-*"))] == ["seed-1"]
    assert [path.name for path in sorted((first.parents[1]).glob("seed-*"))] == ["seed-0"]
    assert read_study(second / "study.json")[0].seed_numbers == [1]


def test_merged_they_are_one_study(machines, tmp_path, capsys):
    """Whatever the order of the files: tables and figures are those of one run, byte for byte but for its minutes."""
    both, first, second = machines
    files = [str(folder / "study.json") for folder in (second, first)]
    assert main(["reproduce", "--merge", *files, "--out", str(tmp_path / "merged")]) == 0
    merged = tmp_path / "merged"
    assert {path.name for path in merged.iterdir()} == {path.name for path in both.iterdir()}
    ours, theirs = ((folder / "tables.md").read_text(encoding="utf-8") for folder in (merged, both))
    assert without_minutes(ours) == without_minutes(theirs)
    assert without_minutes(theirs).count(" | |") == 2
    assert "over 2 training seeds" in ours
    assert "as a multiple of that of MDLM" in ours
    assert ours in capsys.readouterr().out
    for name in ("entropy-aligned.csv", "temperature-aligned.csv"):
        assert (merged / name).read_bytes() == (both / name).read_bytes()
    assert study_text(read_study(merged / "study.json")) == ours
    minutes = [[one.minutes for one in read_study(folder / "study.json")[0].trained] for folder in machines]
    together = [one.minutes for one in read_study(merged / "study.json")[0].trained]
    assert together == pytest.approx([one + other for one, other in zip(*minutes[1:], strict=True)])


def test_a_model_may_stand_beside_another_than_the_reference(machines, tmp_path):
    (plain,) = read_study(machines[0] / "study.json")
    assert list(plain.ratios) == ["MultiMDM"]
    result = with_figures(replace(plain, beside={"MDLM": "MultiMDM"}), plain.each, plain.seed_numbers)
    for one, other in zip(result.ratios["MDLM"], result.ratios["MultiMDM"], strict=True):
        assert one is not None
        assert other is not None
        assert one.value * other.value == pytest.approx(1.0)
    text = study_text([result])
    assert "as a multiple of that of MDLM, or of the model that is named" in text
    assert "| MDLM, beside MultiMDM | " in text
    write_study(tmp_path / "study.json", [result])
    assert study_text(read_study(tmp_path / "study.json")) == text


def test_a_seed_counts_once(machines):
    both, first, second = (folder / "study.json" for folder in machines)
    with pytest.raises(ValueError, match=r"first.*study.json and .*both.*study.json both have seed 0"):
        merge([first, both])
    with pytest.raises(ValueError, match=r"both have seed 1"):
        merge([both, second])
    with pytest.raises(ValueError, match="every study once"):
        merge([first, first])
    with pytest.raises(ValueError, match="at least two studies; got 1"):
        merge([first])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"title": "Another"}, r"the specification is 'Another \(nothing of the paper\)', not 'One mask or many"),
        ({"scale": "tales"}, "the scale is 'tales: Nothing is learnt.', not 'tiny: Nothing is learnt.'"),
        ({"equal": "Nothing."}, "the rule of equal budgets is 'Nothing.'"),
        ({"steps": [1, 4]}, r"K is \[1, 4\], not \[1, 2\]"),
        ({"reference": "MultiMDM"}, "the reference is 'MultiMDM', not 'MDLM'"),
        ({"beside": {"MDLM": "MultiMDM"}}, "compared with another model than the reference is {'MDLM': 'MultiMDM'}"),
        ({"judge": "gpt2"}, r"other judges than .*\['gpt2'\], not \['tales'\]"),
        ({"each": {}}, "has no figures of single seeds: an older version wrote it"),
    ],
)
def test_other_studies_are_refused(machines, change, message, tmp_path):
    _, first, second = machines
    data = json.loads((second / "study.json").read_text(encoding="utf-8"))
    data["studies"][0] |= change
    other = tmp_path / "study.json"
    other.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        merge([first / "study.json", other])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train.steps": 9}, r"the budget of MDLM is \('pretrain 9 × 2, adapt 2 × 2', 22, 0\), not \('pretrain 3 × 2"),
        ({"train.learning_rate": 0.5}, "the fingerprint of the recipes of MDLM is "),
    ],
)
def test_other_training_is_refused(machines, change, message, tmp_path):
    """The scale is another under the same name. Nothing is trained: the figures of the second run serve."""
    _, first, second = machines
    shutil.copytree(second.parents[2], tmp_path / "out")
    runs = json.loads(json.dumps(SCALE["runs"]))
    runs["start"]["set"] |= change
    spec, _ = tiny_files(tmp_path, "MDLM", "MultiMDM")
    scale = write_yaml(tmp_path / "tiny.yaml", {**SCALE, "runs": runs})
    finished = tmp_path / "out" / "tiny" / "seed-1" / "start" / "finished.json"
    content = json.loads(finished.read_text(encoding="utf-8"))
    finished.write_text(json.dumps({**content, "recipe": {**content["recipe"], **change}}), encoding="utf-8")
    arguments = ["reproduce", spec, "--scale", scale, "--out", str(tmp_path / "out"), "--first-seed", "1"]
    assert main(arguments) == 0
    with pytest.raises(ValueError, match=message):
        merge([first / "study.json", tmp_path / RESULTS / "study.json"])


def test_real_text_may_lie_elsewhere_but_must_be_the_same(machines, tmp_path):
    _, first, second = machines
    data = json.loads((second / "study.json").read_text(encoding="utf-8"))
    other = tmp_path / "study.json"
    for evaluations in data["studies"][0]["each"].values():
        evaluations[0]["real"]["name"] = "/elsewhere"
    other.write_text(json.dumps(data), encoding="utf-8")
    assert merge([first / "study.json", other])[0].seeds == 2
    data["studies"][0]["each"]["MDLM"][0]["real"]["entropy"]["value"] += 1
    other.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ValueError, match="the real text beside MDLM, or what tales says of it is "):
        merge([first / "study.json", other])


def test_bad_options_are_named(machines, tmp_path, capsys):
    files = [str(folder / "study.json") for folder in machines[1:]]
    assert main(["reproduce", "--merge", *files]) == 2
    assert "--merge needs --out DIR" in capsys.readouterr().err
    assert main(["reproduce", "ablation", "--merge", *files, "--out", str(tmp_path / "merged")]) == 2
    told = "--merge got studies of 'One mask or many'; ablation is 'The number of masks'"
    assert told in capsys.readouterr().err
    assert not (tmp_path / "merged").exists()
    assert main(["reproduce", "ablation", "--first-seed", "-1"]) == 2
    assert "--first-seed must be 0 or more; got -1" in capsys.readouterr().err
