"""`make models`: training by recipes that goes on where it was stopped, and packing with a card."""

import json
from dataclasses import replace

import pytest
import torch

import builtin_models  # pyright: ignore[reportMissingImports]
from multimdm import load
from multimdm.pipeline.builtin_cards import BuiltinCard
from multimdm.pipeline.files import sha256_of
from multimdm.pipeline.settings import read_as
from multimdm.pipeline.tensor_file import TensorFile
from multimdm.training.recipes import parse_recipe, read_yaml
from multimdm.training.schema import RECIPES
from multimdm.training.shipped import shipped
from support.tiny_models import tales_model

LINEAGE = (
    {"command": "pretrain", "name": "tales-ar", "steps": 3, "recipe": {"train": {"batch_size": 4, "seed": 1}}},
    {
        "command": "couple",
        "name": "tales",
        "steps": 5,
        "recipe": {"init": "somewhere/runs/tales-ar/model", "train": {"batch_size": 2, "seed": 1}},
    },
)


def test_every_built_in_model_has_a_recipe():
    recipes = shipped("builtin")
    assert set(recipes) == set(builtin_models.NAMES)
    for name, path in recipes.items():
        data = read_yaml(path)
        recipe = parse_recipe(data, RECIPES[data["command"]], name)
        assert recipe.train.precision != "auto", "the same on every machine"
        init = getattr(recipe, "init", None)
        assert init is None or init in recipes


def test_packing_halves_the_weights_and_writes_a_true_card(tmp_path):
    model = replace(tales_model(), lineage=LINEAGE)
    card = builtin_models.pack("tales", model, tmp_path, num=3)
    place = tmp_path / "tales"
    tensors = TensorFile(place / "model.safetensors")
    assert {tensors.dtypes[name] for name in tensors if tensors.is_float(name)} == {"F16"}
    assert read_as(BuiltinCard, json.loads((place / "card.json").read_text()), "card") == card
    assert card.sha256 == {path.name: sha256_of(path) for path in place.iterdir() if path.name != "card.json"}
    assert [(stage.recipe, stage.steps, stage.sequences) for stage in card.stages] == [
        ("tales-ar", 3, 12),
        ("tales", 5, 10),
    ]
    assert card.sequences == 22
    packed = load(place)
    assert packed.lineage[1]["recipe"]["init"] == "tales-ar"
    for one, other in zip(packed.network.parameters(), model.network.parameters(), strict=True):
        assert torch.equal(one, other.half().float())
    assert [one.steps for one in card.figures] == [1, 2, 4]
    assert builtin_models.figures_of(packed, 3, 0) == card.figures  # of the halved weights


def test_packing_again_replaces_all_of_it(tmp_path):
    model = replace(tales_model(), lineage=LINEAGE)
    builtin_models.pack("tales", model, tmp_path, num=3)
    (tmp_path / "tales" / "stranger.txt").write_text("x")
    builtin_models.pack("tales", model, tmp_path, num=3)
    assert not (tmp_path / "tales" / "stranger.txt").exists()


def test_weights_that_do_not_fit_are_refused_and_nothing_is_written(tmp_path):
    model = replace(tales_model(), lineage=LINEAGE)
    with torch.no_grad():
        next(iter(model.network.parameters())).view(-1)[0] = 1e6
    with pytest.raises(ValueError, match="numbers that half precision cannot hold"):
        builtin_models.pack("tales", model, tmp_path, num=3)
    assert not list(tmp_path.iterdir())


def test_models_that_are_too_large_together_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(builtin_models, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="1,000 are allowed"):
        builtin_models.pack("tales", replace(tales_model(), lineage=LINEAGE), tmp_path, num=3)
    assert not (tmp_path / "tales").exists()


def test_an_unknown_name_is_refused(capsys):
    with pytest.raises(SystemExit):
        builtin_models.main(["pack", "tale"])
    assert "there is no built-in model 'tale'" in capsys.readouterr().err
