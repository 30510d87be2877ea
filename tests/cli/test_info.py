"""`multimdm info` and `multimdm recipes`."""

import json
import re

import pytest

import multimdm
from multimdm.cli.main import main
from multimdm.models import DiT, fade_masks
from multimdm.samplers import SamplingAdvice
from multimdm.training.schema import RECIPES
from multimdm.training.shipped import by_command, shipped, word_on
from support.runs import tiny_job
from support.tiny_models import causal_tales_model, shown_tales_model, tales_model


def test_info_tells_what_a_checkpoint_is(tmp_path, capsys):
    model = tales_model(num_masks=3)
    recipe = {"data": {"kind": "tales"}, "train": {"batch_size": 8, "steps": 1200}, "init": "runs/tales-mdlm/model"}
    model.lineage = ({"command": "adapt", "name": "mine", "steps": 1200, "recipe": recipe},)
    model.save(tmp_path / "model")
    assert main(["info", str(tmp_path / "model")]) == 0
    text = capsys.readouterr().out
    for words in (
        "multi-mask diffusion, M = 3, rho = 1",
        "DiT: 1 block of width 32, 0.04 million parameters in float32; 2 heads, up to 48 tokens; sees sigma(t)",
        "MultiMask, V = 404, M = 3, rho = 1, alpha linear",
        "tales, 404 tokens",
        "adapt mine: 1,200 steps, batch 8, data tales, from runs/tales-mdlm/model",
        "steps 4 (as usual)",
    ):
        assert words in text
    assert main(["info", str(tmp_path / "model"), "--recipes"]) == 0
    assert "batch_size: 8" in capsys.readouterr().out


def test_info_tells_that_masks_fade(tmp_path, capsys):
    model = tales_model(num_masks=3)
    assert isinstance(model.network, DiT)
    model.network = fade_masks(model.network, 0.5)
    model.save(tmp_path / "model")
    assert main(["info", str(tmp_path / "model")]) == 0
    assert "sees sigma(t), masks that fade by (1 - t)^0.5" in " ".join(capsys.readouterr().out.split())


def test_info_tells_advice(tmp_path, capsys):
    shown_tales_model(SamplingAdvice(order="confidence", temperature=0.0)).save(tmp_path / "model")
    assert main(["info", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "order confidence (advised)" in text
    assert "temperature 0.0 (advised)" in text
    assert "steps 4 (as usual)" in text
    assert "noise tied to the text and shown" in text


def test_info_tells_figures(tmp_path, capsys):
    """Of a built-in model its card's, of a run its last validation's; damaged records are none."""
    assert main(["info", "tales"]) == 0
    assert "  figures    256 samples, seed 0" in capsys.readouterr().out
    causal_tales_model().save(tmp_path / "run" / "model")
    assert main(["info", str(tmp_path / "run")]) == 0
    assert "figures    none here: multimdm evaluate measures" in capsys.readouterr().out
    valid = {"kind": "valid", "standard_error": 0.012, "bound": True, "one_step": False}
    records = [{**valid, "step": 500, "nelbo": 2.5}, {**valid, "step": 1000, "nelbo": 1.25}]
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    assert main(["info", str(tmp_path / "run")]) == 0
    assert "figures    validated after 1,000 steps: NELBO 1.2500 ± 0.0120 nats/token" in capsys.readouterr().out
    metrics.write_text('{"kind": "valid", "step": []}', encoding="utf-8")
    assert main(["info", str(tmp_path / "run")]) == 0
    assert "figures    none here" in capsys.readouterr().out


def test_info_of_an_autoregressive_model(tmp_path, capsys):
    causal_tales_model().save(tmp_path / "model")
    assert main(["info", str(tmp_path / "model")]) == 0
    text = capsys.readouterr().out
    assert "autoregressive, one network call per token" in text
    assert "process" not in text


def masks_of(path):
    process = multimdm.load(path).process
    assert process is not None
    return process.num_masks


def test_a_run_stands_for_its_model(tmp_path):
    """Wherever a checkpoint is opened; but a checkpoint with a folder model beside its files is itself."""
    job = tiny_job(system="mdlm")
    job.model.save(tmp_path / "run" / "model")
    assert masks_of(tmp_path / "run") == 1
    tales_model(num_masks=3).save(tmp_path / "both")
    job.model.save(tmp_path / "both" / "model")
    assert masks_of(tmp_path / "both") == 3
    with pytest.raises(ValueError, match="nothing is not a checkpoint directory"):
        multimdm.load(tmp_path / "nothing")


def test_recipes_are_listed_by_command(capsys):
    assert main(["recipes"]) == 0
    sections = dict(part.split("\n", 1) for part in capsys.readouterr().out.split("multimdm ")[1:-1])
    assert set(sections) == {f"{command} RECIPE" for command in RECIPES}
    assert re.search(r"  tales-mdlm  +Masked diffusion \(MDLM\) on Tales", sections["pretrain RECIPE"])
    assert "tales-multimdm-cont" in sections["adapt RECIPE"]
    assert main(["recipes", "couple"]) == 0
    text = capsys.readouterr().out
    assert "tales-quantile" in text
    assert "tales-mdlm " not in text
    assert main(["recipes", "--show", "tales-mdlm"]) == 0
    assert capsys.readouterr().out == shipped()["tales-mdlm"].read_text()


def test_every_shipped_recipe_is_of_one_command_and_says_what_it_is():
    found = by_command()
    assert sorted(name for recipes in found.values() for name in recipes) == sorted(shipped())
    for recipes in found.values():
        for path in recipes.values():
            word = word_on(path)
            assert word.endswith(".")
            assert 20 < len(word) < 250
