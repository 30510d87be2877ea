"""`multimdm evaluate` with the network on the pretend GPUs: the figures of the CPU."""

import json
from pathlib import Path
from typing import Any

import pytest

from multimdm.cli.main import main
from multimdm.evaluation import subject
from multimdm.pipeline import load
from pretend_gpu import pretend_gpu
from pretend_gpu.compiled import Schedule
from support.tiny_models import causal_tales_model, shown_tales_model, tales_model

MODELS = {
    "several masks": (
        lambda: tales_model(),
        ["--nelbo", "--recall", "--strings", "8", "--against-perfect"],
    ),
    # Not by confidence: of one mask everywhere all positions are equally sure, and rounding would decide.
    "one mask": (lambda: tales_model(num_masks=1), ["--likelihood", "left_to_right"]),
    "noise that is shown": (lambda: shown_tales_model(), ["--order", "rewrite"]),
    "autoregressive": (lambda: causal_tales_model(), ["--nelbo"]),
}
SMALL = ["--steps", "2", "--num", "4", "--batch-size", "4", "--sequences", "4"]


def figures(path: Path, out: Path, words: list[str]) -> Any:
    assert main(["evaluate", str(path), *SMALL, *words, "--device", "cpu", "--out", str(out)]) == 0
    return json.loads((out / "results.json").read_text(encoding="utf-8"))


def same(one: Any, other: Any) -> bool:
    """Numbers may differ by rounding; nothing else may."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == pytest.approx(other, rel=1e-3, abs=1e-5)
    return one == other


@pytest.mark.parametrize("name", MODELS)
def test_figures_are_those_of_the_cpu(name, tmp_path, monkeypatch):
    make, words = MODELS[name]
    make().save(tmp_path / "model")
    expected = figures(tmp_path / "model", tmp_path / "cpu", words)
    monkeypatch.setattr("pretend_gpu.device.schedule_of", lambda function, args: Schedule(1, 0))  # nothing is counted
    for device in ("cuda", "mps"):

        def there(path, *_, device=device):
            model = load(path)
            model.network.to(f"{device}:0")
            return model

        monkeypatch.setattr(subject, "load", there)
        with pretend_gpu(device) as counts:
            found = figures(tmp_path / "model", tmp_path / device, words)
            assert counts.launches
        assert same(found, expected)
