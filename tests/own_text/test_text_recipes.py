"""Every recipe for one's own text, in both sizes and on both layouts, as its first lines say; but tiny."""

import json
import random
from pathlib import Path

import pytest

from multimdm import load
from multimdm.cli.main import main

WORDS = ["the", "baker", "sold", "three", "old", "lamps", "behind", "a", "green", "mill", "and", "nobody", "saw", "it"]
NETWORK = ["--network.hidden-dim", "16", "--network.num-blocks", "1", "--network.num-heads", "2"]
SHORT = ["--train.steps", "5", "--train.warmup", "0", "--train.batch-size", "4"]
FEW = ["--log.validation-sequences", "4", "--log.validate-every", "0", "--log.sample-every", "0"]
WAYS = {
    "text-ar": "pretrain",
    "text-quantile": "couple",
    "text-mdlm": "pretrain",
    "text-multimdm-cont": "adapt",
    "text-distill-gumbel": "distill",
    "text-distill-sdtt": "distill",
}
"""In an order in which each finds the model that it begins with, where the recipe looks for it."""


@pytest.mark.parametrize("size", ["", "-gpu"])
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_they_run_one_after_the_other(layout, size, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    draw = random.Random(3)
    lines = (" ".join(draw.choices(WORDS, k=draw.randint(3, 6))) + "." for _ in range(60))
    Path("book.txt").write_text("\n".join(lines), encoding="utf-8")
    prepare = ["prepare", "book.txt", "--tokenizer", "bpe:300", "--length", "32", "--layout", layout]
    assert main([*prepare, "--valid-fraction", "0.1", "--out", "data/text"]) == 0
    for name, command in WAYS.items():
        recipe = f"{name}{size}"
        parts = ["--train.micro-batch", "2"] if size else []
        options = [*(NETWORK if command == "pretrain" else []), *SHORT, *parts, *FEW]
        assert main([command, recipe, *options]) == 0, capsys.readouterr().err
        model = load(f"runs/{recipe}")
        assert model.sample(num=1, steps=None if name == "text-ar" else 2, seed=0).texts
        config = json.loads(Path(f"runs/{recipe}/model/config.json").read_text(encoding="utf-8"))
        assert config["network"]["absolute_positions"] == (layout == "padded")
    lineage = [step["command"] for step in load(f"runs/text-distill-gumbel{size}").lineage]
    assert lineage == ["pretrain", "adapt", "distill"]
