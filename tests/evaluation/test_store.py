import json
from dataclasses import dataclass, replace

import pytest
import torch

from multimdm.evaluation.plan import Plan, collect, tasks
from multimdm.evaluation.progress import ignore
from multimdm.evaluation.real_text import real_text
from multimdm.evaluation.settings import Drawing
from multimdm.evaluation.store import Store, write_json
from multimdm.evaluation.subject import Subject
from multimdm.pipeline import Model
from support.present import present
from support.tiny_judges import KnownJudge
from support.tiny_models import tales_model


@dataclass(frozen=True)
class Part:
    value: float


@dataclass(frozen=True)
class Result:
    parts: tuple[Part, ...]
    note: str | None = None


class Work:
    """Counts how often it is done."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Result:
        self.times += 1
        return Result((Part(0.1), Part(2.5)), "ü")


@pytest.mark.parametrize("on_disk", [True, False])
def test_what_is_done_is_not_done_again(tmp_path, on_disk):
    work, store = Work(), Store(tmp_path / "points" if on_disk else None)
    first = store.remembered(Result, {"a": 1, "b": [2]}, work)
    assert store.remembered(Result, {"b": [2], "a": 1}, work) == first
    assert work.times == 1
    store.remembered(Result, {"a": 2, "b": [2]}, work)
    assert work.times == 2
    again = Store(tmp_path / "points").remembered(Result, {"a": 1, "b": [2]}, work)
    assert again == first
    assert work.times == (2 if on_disk else 3)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"result": {"parts": 3}}', '{"result": {}}'])
def test_a_damaged_file_is_measured_anew(tmp_path, damage):
    work = Work()
    Store(tmp_path).remembered(Result, {}, work)
    (file,) = tmp_path.iterdir()
    file.write_text(damage)
    assert Store(tmp_path).remembered(Result, {}, work) == work()
    assert work.times == 3
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_flipped_bit_is_not_a_figure(tmp_path, caplog):
    """Whichever it is: the result is the old one, or is measured anew and the file named."""
    work = Work()
    first = Store(tmp_path).remembered(Result, {"a": 1}, work)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        caplog.clear()
        found = Store(tmp_path).known(Result, {"a": 1})
        if found is None:
            assert f"{file} is damaged" in caplog.text
        else:  # as 1e-3 and 1E-3
            assert found == first
            assert json.loads(bytes(damaged)) == json.loads(content)


def test_a_result_without_its_sha256_is_measured_anew(tmp_path, caplog):
    work = Work()
    first = Store(tmp_path).remembered(Result, {}, work)
    (file,) = tmp_path.iterdir()
    content = json.loads(file.read_text(encoding="utf-8"))
    del content["sha256"]
    write_json(file, content)
    assert Store(tmp_path).remembered(Result, {}, work) == first
    assert work.times == 2
    assert f"{file} is damaged" in caplog.text


def test_a_measurement_of_before_a_field_was_there_is_measured_anew(subject):
    """Results of an older version, aligned ones too: neither an error nor a figure that is missing for ever."""
    new = subject.measured(2, 1.0), subject.aligned(2, 3.0)
    for file in subject.store._directory.iterdir():
        content = json.loads(file.read_text(encoding="utf-8"))
        for result in (content["result"], content["result"].get("measurement", {})):
            result.pop("token_distance", None)
        write_json(file, content)
    again = Subject.open(subject.path, None, subject.drawing, Store(subject.store._directory))
    assert (again.measured(2, 1.0), again.aligned(2, 3.0)) == new
    assert present(new[0].token_distance).value > present(new[0].token_chance)


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", float("nan"))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def subject(tmp_path):
    tales_model().save(tmp_path / "runs" / "mine" / "model")
    return Subject.open(str(tmp_path / "runs" / "mine" / "model"), None, Drawing(num=4), Store(tmp_path / "points"))


def test_a_plan_is_carried_out_once(subject, monkeypatch):
    text = real_text("tales", subject.model)
    plan = Plan((1, 2), (1.0, 0.5), "corpus", text, text, sequences=4, trajectories=True)
    todo = tasks(subject, plan)
    assert [task.name for task in todo[:5]] == [
        "mine: real text",
        "mine: NELBO",
        "mine: what masks tell",
        "mine: K = 1, tau = 1",
        "mine: K = 1, tau = 0.5",
    ]
    for task in todo:
        task.run(ignore)
    monkeypatch.setattr(type(subject.model), "sample", None)  # nothing may be drawn from here on
    result = collect(subject, plan)
    assert [(m.steps, m.temperature) for m in result.measurements] == [(1, 1.0), (1, 0.5), (2, 1.0), (2, 0.5)]
    assert [one.measurement.steps for one in result.aligned] == [1, 2]
    assert {one.target for one in result.aligned} == {present(result.real).entropy.value}
    assert [picture.steps for picture in result.trajectories] == [1, 2]
    assert result.nats_per_token == pytest.approx(1.0359, abs=1e-3)
    data = result.as_data()
    assert data["nelbo"]["total"] == pytest.approx(present(result.nelbo).total)
    assert "trajectories" not in data


def test_results_depend_on_the_weights_and_the_settings(subject, tmp_path):
    first = subject.measured(2, 1.0)
    assert replace(subject, drawing=replace(subject.drawing, batch_size=1)).measured(2, 1.0) is first
    assert replace(subject, drawing=replace(subject.drawing, seed=1)).measured(2, 1.0) != first
    tales_model(seed=1).save(tmp_path / "other")
    other = Subject.open(str(tmp_path / "other"), None, subject.drawing, subject.store)
    assert other.measured(2, 1.0) != first


def test_the_corpus_must_be_there_to_align_to(subject):
    plan = Plan((1,), align="corpus")
    with pytest.raises(ValueError, match="needs real text"):
        collect(subject, plan)
    assert collect(subject, Plan((1,), align=3.0)).aligned[0].target == 3.0


@pytest.fixture
def drawn(monkeypatch):
    """The temperature of every call of `Model.sample`."""
    asked, original = [], Model.sample

    def sample(self, **named):
        asked.append(named["sampling"].temperature)
        return original(self, **named)

    monkeypatch.setattr(Model, "sample", sample)
    return asked


def test_an_interrupted_alignment_loses_one_trial_at_most(subject, drawn, monkeypatch):
    whole = Subject.open(subject.path, None, subject.drawing, Store()).aligned(2, 3.0)
    assert len(whole.trials) >= 4
    drawn.clear()
    counted = Model.sample

    def stop(self, **named):
        if len(drawn) == 3:
            raise KeyboardInterrupt
        return counted(self, **named)

    monkeypatch.setattr(Model, "sample", stop)
    with pytest.raises(KeyboardInterrupt):
        subject.aligned(2, 3.0)
    monkeypatch.setattr(Model, "sample", counted)
    again = Subject.open(subject.path, None, subject.drawing, Store(subject.store._directory))
    assert again.aligned(2, 3.0) == whole
    assert sorted(drawn) == [trial.temperature for trial in whole.trials]  # each temperature once


def test_an_alignment_uses_what_the_sweep_has_drawn(subject, drawn):
    judge = KnownJudge(torch.ones(404), 404)
    judged = replace(subject, judge=judge)
    judged.measured(2, 1.0)
    asked, score = [], judge.score
    judge.score = lambda *arguments, **named: asked.append(1) or score(*arguments, **named)
    result = judged.aligned(2, 3.0)
    assert drawn.count(1.0) == 1
    assert len(asked) == 1  # about the temperature that was found
    assert result.measurement == judged.measured(2, result.measurement.temperature)
    assert result.measurement.gen_ppl is not None
