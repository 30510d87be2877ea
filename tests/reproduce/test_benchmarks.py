"""Tab. llada from its specification, with a tiny LLaDA that adds in place of the one with 8 billion parameters."""

import json

import pytest

from multimdm.cli.main import main
from multimdm.evaluation.harness import running
from multimdm.reproduce.running import Request, open_experiment
from support.addition import sums, write_recipes, write_task
from support.tiny_reproduction import write_yaml


@pytest.fixture
def request_(tmp_path):
    recipes = write_recipes(tmp_path, digits=1, base_steps=2, adapt_steps=2, masks=3)
    assert main(recipes.prepare) == 0
    task = write_task(tmp_path / "task", sums(3, seed=2, digits=1), recipes.answer_length)
    scale = {
        "about": "Nothing is learnt.",
        "data": str(tmp_path / "data"),
        "judges": [],
        "steps": [1],
        "runs": {
            "base": {"command": "pretrain", "recipe": str(tmp_path / "base.yaml"), "set": {"train.batch_size": 2}},
            "adapted": {
                "command": "adapt",
                "recipe": str(tmp_path / "adapted.yaml"),
                "start": "base",
                "set": {"train.batch_size": 2},
            },
        },
    }
    spec = {
        "title": "Adaptation",
        "shows": "Tab. llada",
        "kind": "harness",
        "models": {"MultiLLaDA": "adapted"},
        "harness": {
            "base": "LLaDA",
            "tasks": ["addition"],
            "include": str(task),
            "gen_length": recipes.answer_length,
            "tps": [1, 2],
        },
        "published": {"tiny": {"addition": {"LLaDA": [27.0, 28.6]}}},
    }
    paths = write_yaml(tmp_path / "spec.yaml", spec), write_yaml(tmp_path / "tiny.yaml", scale)
    return Request(*paths, 1, tmp_path / "out")


def test_base_and_adapted_at_every_tps(request_, tmp_path, monkeypatch):
    devices, load = [], running.load
    monkeypatch.setattr(running, "load", lambda path, device, *rest: devices.append(device) or load(path, "cpu", *rest))
    command = ["reproduce", request_.spec, "--scale", request_.scale, "--out", str(request_.out)]
    assert main(command) == 0
    assert devices == ["auto", "auto"], "benchmarks take a GPU if there is one"
    out = tmp_path / "out" / "tiny" / "results" / "spec"
    text = (out / "tables.md").read_text(encoding="utf-8")
    assert "| addition | LLaDA |" in text
    assert "| addition | MultiLLaDA |" in text
    assert "| LLaDA | 27 | 28.6 |" in text, "what the paper printed"
    scores = json.loads((out / "seed-0.json").read_text(encoding="utf-8"))
    assert [(one["model"], one["tps"], one["items"]) for one in scores] == [
        *(("LLaDA", tps, 3) for tps in (1, 2)),
        *(("MultiLLaDA", tps, 3) for tps in (1, 2)),
    ]
    points = sorted((tmp_path / "out" / "tiny" / "points").iterdir())
    assert main(command) == 0
    assert sorted((tmp_path / "out" / "tiny" / "points").iterdir()) == points, "nothing is measured twice"


def test_programs_are_run_only_if_allowed(request_):
    with pytest.raises(ValueError, match="allow it with --run-code"):
        open_experiment(Request("llada", "paper", 1, request_.out))
