"""Learning rates, seeds, the moving average, records: the small parts of the loop."""

import json
import math
from dataclasses import replace

import pytest
import torch

from multimdm.training.followers import Ema
from multimdm.training.records import Records, read_records
from multimdm.training.settings import LogSettings, TrainSettings
from multimdm.training.step_plan import derive, learning_rate


def test_the_rate_grows_and_stays():
    train = TrainSettings(steps=100, warmup=10, learning_rate=1.0)
    assert [learning_rate(step, train) for step in (0, 4, 9, 10, 99)] == pytest.approx([0.1, 0.5, 1.0, 1.0, 1.0])


def test_the_cosine_ends_where_it_should():
    train = TrainSettings(steps=110, warmup=10, learning_rate=2.0, decay="cosine", final_rate=0.1)
    assert learning_rate(10, train) == 2.0
    assert learning_rate(60, train) == pytest.approx(2.0 * (0.1 + 0.9 * 0.5))
    assert learning_rate(110, train) == pytest.approx(0.2)
    rates = [learning_rate(step, train) for step in range(10, 110)]
    assert rates == sorted(rates, reverse=True)


def test_without_warm_up_the_first_step_has_the_full_rate():
    assert learning_rate(0, TrainSettings(warmup=0, learning_rate=1.0)) == 1.0


def test_seeds_differ_by_every_argument_and_are_the_same_always():
    seeds = [
        derive(0, "a"),
        derive(1, "a"),
        derive(0, "b"),
        derive(0, "a", 1),
        derive(0, "a", 1, 1),
        derive(0, "a", 11),
    ]
    assert len(set(seeds)) == len(seeds)
    assert derive(0, "a") == 6612858177627257344
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_average_is_the_recursion():
    weight = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    ema, expected = Ema([weight], 0.9), 1.0
    for n in range(40):
        with torch.no_grad():
            weight += 0.5
        ema.update(n)
        decay = min(0.9, (1 + n) / (10 + n))
        expected = decay * expected + (1 - decay) * float(weight.detach())
    assert float(ema.average[0]) == pytest.approx(expected, rel=1e-12)


def test_the_average_is_exchanged_and_given_back():
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    ema = Ema([weight], 0.5)
    with torch.no_grad():
        weight.copy_(torch.tensor([3.0, 5.0]))
    with ema.applied():
        assert weight.tolist() == [1.0, 2.0]
    assert weight.tolist() == [3.0, 5.0]
    assert ema.average[0].tolist() == [1.0, 2.0]


def test_records_of_later_steps_are_cut_on_resuming(tmp_path):
    log = LogSettings(tensorboard=False)
    records = Records(tmp_path, "x", log, 0, {})
    for step in range(1, 6):
        records.write("train", step, loss=math.pi * step)
    records.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 6, "lo')  # killed here
    records = Records(tmp_path, "x", log, 3, {})
    records.write("train", 4, loss=0.5)
    records.close()
    assert [(r["step"], r["loss"]) for r in read_records(tmp_path, "train")] == [
        (1, math.pi),
        (2, 2 * math.pi),
        (3, 3 * math.pi),
        (4, 0.5),
    ]


def test_tensorboard_gets_numbers_and_texts(tmp_path):
    records = Records(tmp_path, "x", LogSettings(), 0, {})
    records.write("train", 1, loss=0.5)
    records.write("sample", 1, texts=["a story", "another"])
    records.close()
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"train/loss" in events.read_bytes()
    assert b"a story" in events.read_bytes()


@pytest.mark.parametrize("package", ["wandb", "trackio"])
@pytest.mark.parametrize("installed", [True, False])
def test_trackers_are_optional(package, installed, tmp_path, monkeypatch):
    import sys
    from types import ModuleType, SimpleNamespace

    seen: list = []
    run = SimpleNamespace(log=seen.append, finish=lambda: seen.append("done"), define_metric=lambda *_, **__: None)
    stub = ModuleType(package)
    vars(stub).update(init=lambda **about: (seen.append(about), run)[1], Table=lambda columns, data: data)
    monkeypatch.setitem(sys.modules, package, stub if installed else None)
    log = replace(LogSettings(tensorboard=False), **{package: "project"})
    if not installed:
        with pytest.raises(ValueError, match=f"pip install {package}"):
            Records(tmp_path, "x", log, 0, {})
        return
    records = Records(tmp_path, "x", log, 0, {"a": 1})
    records.write("train", 3, loss=0.5, texts=["a story"])
    records.close()
    assert seen[0]["project"] == "project"
    assert seen[0]["config"] == {"a": 1}
    texts = [["a story"]] if package == "wandb" else "a story"
    assert seen[1:] == [{"step": 3, "train/loss": 0.5, "train/texts": texts}, "done"]
    Records(tmp_path, "x", log, 3, {}).close()
    name = "id" if package == "wandb" else "name"
    assert seen[-2][name] == seen[0][name]  # a resumed run goes on under its old one
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["loss"] == 0.5
