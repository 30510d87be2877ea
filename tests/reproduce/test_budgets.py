"""Equal budgets are checked."""

import copy

import pytest

from multimdm.reproduce.comparison import Budget, check_equal
from multimdm.reproduce.running import Request, open_experiment
from support.tiny_reproduction import SCALE, SPEC, tiny_files, write_yaml


def test_stages_compares_training_and_distillation_apart():
    plain, distilled = Budget(100, 0), Budget(100, 20)
    check_equal({"a": plain, "b": plain, "c": distilled, "d": distilled}, "stages")
    with pytest.raises(ValueError, match="equally many sequences of distillation; they saw: c 20, d 21"):
        check_equal({"a": plain, "c": distilled, "d": Budget(100, 21)}, "stages")
    with pytest.raises(ValueError, match="equally many sequences of training; they saw: a 100, b 99"):
        check_equal({"a": plain, "b": Budget(99, 0)}, "stages")


def test_total_counts_both():
    check_equal({"a": Budget(100, 0), "b": Budget(80, 20)}, "total")
    with pytest.raises(ValueError, match="equally many sequences in all; they saw: a 100, b 120"):
        check_equal({"a": Budget(100, 0), "b": Budget(100, 20)}, "total")


@pytest.mark.parametrize("change", [{"train.steps": 6}, {"train.batch_size": 4}])
def test_a_model_with_more_training_is_refused_before_any_work(tmp_path, change):
    spec, _ = tiny_files(tmp_path)
    data = copy.deepcopy(SCALE)
    data["runs"]["straight"]["set"] |= change
    scale = write_yaml(tmp_path / "tiny.yaml", data)
    with pytest.raises(ValueError, match=r"equally many sequences of training.*straight on"):
        open_experiment(Request(spec, scale, 1, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_published_rows_must_fit(tmp_path):
    _, scale = tiny_files(tmp_path)
    spec = write_yaml(tmp_path / "s.yaml", {**SPEC, "published": {"tiny": {"entropy-aligned": {"MDLM": [1.0]}}}})
    with pytest.raises(ValueError, match="1 figures for MDLM; there are 2 numbers of steps"):
        open_experiment(Request(spec, scale, 1, tmp_path))
    spec = write_yaml(tmp_path / "s.yaml", {**SPEC, "published": {"tiny": {"entropy-aligned": {"MDML": [1.0]}}}})
    with pytest.raises(ValueError, match="no model with the label 'MDML'"):
        open_experiment(Request(spec, scale, 1, tmp_path))


def test_the_reference_is_one_of_the_models(tmp_path):
    _, scale = tiny_files(tmp_path)
    spec = write_yaml(tmp_path / "s.yaml", {**SPEC, "reference": "MDML"})
    with pytest.raises(ValueError, match="reference must be the label of a model; there is no 'MDML'"):
        open_experiment(Request(spec, scale, 1, tmp_path))


@pytest.mark.parametrize(("one", "other"), [("MDLM", "MDML"), ("MDML", "MDLM"), ("MDLM", "MDLM")])
def test_who_stands_beside_whom_are_two_models(one, other, tmp_path):
    _, scale = tiny_files(tmp_path)
    spec = write_yaml(tmp_path / "s.yaml", {**SPEC, "beside": {one: other}})
    with pytest.raises(ValueError, match=f"beside must name two models; got '{one}' beside '{other}'"):
        open_experiment(Request(spec, scale, 1, tmp_path))


def test_a_rule_may_be_for_some_of_the_models(tmp_path):
    data = copy.deepcopy(SCALE)
    data["runs"]["straight"]["set"] |= {"train.steps": 6}
    scale = write_yaml(tmp_path / "tiny.yaml", data)
    equal = {"stages": ["MDLM", "MultiMDM"], "total": ["MDLM", "MultiMDM"]}
    spec = write_yaml(tmp_path / "s.yaml", {**SPEC, "equal": equal})
    open_experiment(Request(spec, scale, 1, tmp_path))
    spec = write_yaml(tmp_path / "s.yaml", {**SPEC, "equal": {**equal, "total": ["MDLM", "straight on"]}})
    with pytest.raises(ValueError, match="equally many sequences in all; they saw: MDLM 10, straight on 12"):
        open_experiment(Request(spec, scale, 1, tmp_path))
    spec = write_yaml(tmp_path / "s.yaml", {**SPEC, "equal": {"total": ["MDML"]}})
    with pytest.raises(ValueError, match="equal must name labels of models; there is no 'MDML'"):
        open_experiment(Request(spec, scale, 1, tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"limits": {"AR": "straight"}},
            "limits are for the kind quickstart, .*; the kind is comparison",
        ),
        ({"kind": "quickstart"}, "limits are for the kind quickstart, and needed there; the kind is quickstart"),
        ({"kind": "quickstart", "limits": {"MDLM": "one"}}, "'MDLM' is both"),
        ({"kind": "quickstart", "limits": {"AR": "straight"}}, "must have five models .* it has 4 and 1"),
    ],
)
def test_limits_are_those_of_a_quickstart(tmp_path, change, message):
    _, scale = tiny_files(tmp_path)
    spec = write_yaml(tmp_path / "s.yaml", {**SPEC, **change})
    with pytest.raises(ValueError, match=message):
        open_experiment(Request(spec, scale, 1, tmp_path))
