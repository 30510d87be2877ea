"""Scales: how models are said to be trained, and what is refused."""

import copy

import pytest

from multimdm.reproduce.models import Folders, recipe_of
from multimdm.reproduce.scale import read_scale
from multimdm.training.schema import AdaptRecipe
from support.tiny_reproduction import SCALE, write_yaml


def scale_with(tmp_path, **runs):
    data = copy.deepcopy(SCALE)
    data["runs"] |= runs
    return write_yaml(tmp_path / "tiny.yaml", data)


def test_like_takes_all_that_is_not_said(tmp_path):
    scale = read_scale(scale_with(tmp_path))
    one, many = scale.runs["one"], scale.runs["many"]
    assert (one.command, one.recipe, one.start) == (many.command, many.recipe, many.start)
    assert one.set == {**many.set, "process.num_masks": 1, "conditioning": "none"}


def test_like_alone_is_the_same_model(tmp_path):
    scale = read_scale(scale_with(tmp_path))
    assert scale.runs["many-again"] == scale.runs["many"]
    assert [run.name for run in scale.chain("many-again")] == ["start", "many"]


def test_a_start_by_another_name_is_the_same_start(tmp_path):
    scale = read_scale(scale_with(tmp_path, x={"like": "many-distilled", "start": "many-again"}))
    assert [run.name for run in scale.chain("x")] == ["start", "many", "x"]


def test_a_scale_like_another_says_what_differs(tmp_path):
    base = scale_with(tmp_path)
    changed = {"samples": 8, "runs": {"many": {"set": {"train.steps": 7}}, "x": {"like": "one"}}}
    other = read_scale(write_yaml(tmp_path / "other.yaml", {"like": base, **changed}))
    plain = read_scale(base)
    assert (other.name, other.settings.samples, other.settings.steps) == ("other", 8, plain.settings.steps)
    assert other.runs["many"].set == {**plain.runs["many"].set, "train.steps": 7}
    assert other.runs["one"].set["train.steps"] == 7, "it is like the one that was changed"
    assert other.runs["start"] == plain.runs["start"]
    assert other.runs["x"] == other.runs["one"]


def test_settings_of_a_scale_are_for_models_that_do_not_set_them(tmp_path):
    data = {**SCALE, "set": {"train.learning_rate": 0.25, "train.steps": 99}}
    scale = read_scale(write_yaml(tmp_path / "tiny.yaml", data))
    recipe = recipe_of(scale.runs["many"], scale, 0, Folders(tmp_path))
    assert (recipe.train.learning_rate, recipe.train.steps) == (0.25, 2)


def test_words_and_costs_of_models(tmp_path):
    runs = {"x": {"like": "many", "cost": 1.5, "says": "a model"}, "y": {"like": "x", "set": {"train.steps": 1}}}
    scale = read_scale(scale_with(tmp_path, **runs))
    assert [(scale.runs[name].cost, scale.runs[name].says) for name in ("many", "x", "y")] == [
        (1.0, None),
        (1.5, "a model"),
        (1.5, None),
    ]


@pytest.mark.parametrize("like", ["tiny.yaml", 3])
def test_a_scale_is_not_like_itself(tmp_path, monkeypatch, like):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="like must name another scale"):
        read_scale(write_yaml(tmp_path / "tiny.yaml", {**SCALE, "like": like}))


def test_chains_lead_from_random_weights(tmp_path):
    scale = read_scale(scale_with(tmp_path))
    assert [run.name for run in scale.chain("many-distilled")] == ["start", "many", "many-distilled"]


def test_a_recipe_has_its_seed_and_its_start(tmp_path):
    scale, folders = read_scale(scale_with(tmp_path)), Folders(tmp_path / "out")
    recipe = recipe_of(scale.runs["many"], scale, 7, folders)
    assert isinstance(recipe, AdaptRecipe)
    assert recipe.init == str(tmp_path / "out" / "seed-7" / "start" / "model")
    assert (recipe.train.seed, recipe.train.steps, recipe.process.num_masks) == (7, 2, 3)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"like": "nobody"}, "like must name another model of this file; got 'nobody'"),
        ({"like": "x", "set": {"train.steps": 1}}, "like must name another model"),
        ({"recipe": "tales-mdlm"}, "runs.x: command is missing"),
        ({"command": "pretrain"}, "runs.x: recipe is missing"),
        ({"command": "pretrain", "recipe": "tales-mdlm", "start": "start"}, "it takes no start"),
        ({"command": "adapt", "recipe": "tales-multimdm-cont", "start": "strat"}, "did you mean 'start'?"),
        ({"command": "adapt", "recipe": "tales-multimdm-cont", "start": "x"}, "'x' starts from itself"),
        ({"like": "start", "sett": {}}, "there is no key 'sett'; did you mean 'set'?"),
    ],
)
def test_wrong_entries_are_named(tmp_path, entry, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        read_scale(scale_with(tmp_path, x=entry))


def test_a_misspelt_key_of_a_recipe_is_named_with_its_model(tmp_path):
    scale = read_scale(scale_with(tmp_path, x={"like": "start", "set": {"train.stepps": 4}}))
    with pytest.raises(ValueError, match=r"tiny: x \(tales-mdlm\).*train.stepps.*did you mean 'train.steps'"):
        recipe_of(scale.runs["x"], scale, 0, Folders(tmp_path))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"data": None}, "give one of data and prepare"),
        ({"prepare": {}}, "give one of data and prepare"),
        ({"temperatures": [0.7]}, "temperatures must have 1.0 among them"),
        ({"runs": []}, "runs must map"),
        ({"stepps": [1]}, "did you mean 'steps'"),
    ],
)
def test_wrong_scales_are_refused(tmp_path, changed, message):
    with pytest.raises(ValueError, match=message):
        read_scale(write_yaml(tmp_path / "tiny.yaml", {**SCALE, **changed}))
