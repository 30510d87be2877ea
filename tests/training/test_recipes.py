"""Recipes are read strictly: a misspelt or mistyped key is an error that names it, and the nearest right one."""

from pathlib import Path

import pytest
import yaml

from multimdm.training.recipes import dump_recipe, parse_recipe, read_recipe
from multimdm.training.schema import RECIPES, AdaptRecipe, CoupleRecipe, DistillRecipe, PretrainRecipe, TrainingRecipe
from multimdm.training.settings import DataSettings, ProcessChoice
from multimdm.training.shipped import find_recipe, recipe_directories
from support.runs import tiny

SHIPPED = sorted(path for command in RECIPES for path in recipe_directories()[1].glob(f"{command}/*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_recipes_are_read(path):
    command = yaml.safe_load(path.read_text(encoding="utf-8"))["command"]
    assert command == path.parent.name
    assert RECIPES[command] is _kind(path)
    recipe = read_recipe(path, RECIPES[command])
    assert recipe.train.steps > 0
    assert path.read_text(encoding="utf-8").startswith("#"), "a recipe says what it is for"


def _kind(path: Path) -> type[TrainingRecipe]:
    if "-distill-" in path.stem:
        return DistillRecipe
    if path.stem.removesuffix("-gpu").endswith("-quantile"):
        return CoupleRecipe
    adapts = "-cont" in path.stem or path.stem in ("llada-tiny", "llada-8b-multimask")
    return AdaptRecipe if adapts else PretrainRecipe


def test_recipes_of_several_masks_say_how_masks_are_read():
    """Ours by Bayes' rule; the paper's by the network alone. What recipes leave out is as the paper has it."""
    said = {path.stem: (yaml.safe_load(path.read_text()).get("process") or {}).get("readout") for path in SHIPPED}
    of_paper = {f"{data}-multimdm-{start}" for data in ("owt", "lm1b") for start in ("rand", "cont")}
    ours = {f"{data}-multimdm-{start}" for data in ("tales", "captions") for start in ("rand", "cont")}
    ours |= {"text-multimdm-cont", "text-multimdm-cont-gpu"}
    assert {name for name, readout in said.items() if readout == "posterior"} == of_paper | {"llada-8b-multimask"}
    assert {name for name, readout in said.items() if readout == "context"} == ours | {"llada-tiny"}
    assert ProcessChoice().readout == "posterior"


def test_all_systems_have_recipes():
    assert {path.stem for path in SHIPPED} >= {
        f"{data}-{system}"
        for data in ("tales", "captions", "lm1b", "owt")
        for system in ("mdlm", "duo", "candi", "multimdm-rand", "multimdm-cont")
    } | {
        f"text-{way}{size}"
        for way in ("ar", "mdlm", "multimdm-cont", "distill-gumbel", "distill-sdtt", "quantile")
        for size in ("", "-gpu")
    } | {"tales-ar", "tales-quantile", "captions-quantile", "owt-quantile"} | {
        f"{data}-distill-{way}" for data in ("tales", "owt") for way in ("gumbel", "gaussian", "sdtt")
    }


@pytest.mark.parametrize("path", [p for p in SHIPPED if "tales-distill-" in p.stem], ids=lambda path: path.stem)
def test_in_short_rounds_all_methods_copy_the_teacher_alike(path):
    """SDTT has no other way; a moving average would lag behind in one method alone."""
    recipe = read_recipe(path, DistillRecipe)
    assert recipe.sdtt is not None or (recipe.consistency is not None and recipe.consistency.teacher == "rounds")


def test_a_recipe_survives_the_way_through_plain_data():
    recipe = parse_recipe(tiny(), PretrainRecipe, "here")
    assert parse_recipe(dump_recipe(recipe), PretrainRecipe, "there") == recipe
    assert parse_recipe(yaml.safe_load(yaml.safe_dump(dump_recipe(recipe))), PretrainRecipe, "file") == recipe


@pytest.mark.parametrize("number", ["3e-4", "3E-4", "0.0003", "3.0e-4"])
def test_numbers_may_be_written_as_people_do(number, tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(f"system: mdlm\ntrain:\n  learning_rate: {number}\n")
    assert read_recipe(path, PretrainRecipe).train.learning_rate == 3e-4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("system: mdlm\ntrain: {stpes: 5}", "there is no key 'train.stpes'; did you mean 'train.steps'?"),
        ("system: mdlm\nsteps: 5", "there is no key 'steps'; did you mean 'train.steps'?"),
        ("system: mdlm\ntrian: {steps: 5}", "there is no key 'trian'; did you mean 'train'?"),
        ("system: mdlm\nzebra: 5", "there is no key 'zebra'; the keys here are: data, train"),
        ("system: mdml", "system: Input should be 'mdlm', 'duo', 'multimdm', 'candi' or 'ar'; got 'mdml'"),
        ("train: {steps: 5}", "system is missing"),
        ("system: mdlm\ntrain: {steps: five}", "train.steps: Input should be a valid integer; got 'five'"),
        ("system: mdlm\ntrain: {steps: '5'}", "train.steps: Input should be a valid integer; got '5'"),
        ("system: mdlm\ntrain: {steps: 0}", "train.steps: Input should be greater than 0; got 0"),
        ("system: mdlm\ntrain: {ema: 1.0}", "train.ema: Input should be less than 1; got 1.0"),
        ("system: mdlm\ntrain: 7", "train"),
        ("system: mdlm\nrelaxation: {tau: 0.1}", "relaxation is duo's curriculum; the system is mdlm"),
        ("system: mdlm\ndata: {kind: prepared}", "data: prepared data need a path"),
        ("system: mdlm\ndata: {kind: tales, path: x}", "data: path and valid are for prepared data only"),
        ("- a\n- b", "must hold keys and values; it holds a list"),
        ("system: [", "is not YAML"),
        ("system: 2020-01-01", "every value must be a number, text, list or mapping"),
    ],
)
def test_bad_recipes(text, message, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"bad\.yaml") as error:
        read_recipe(path, PretrainRecipe)
    assert message in str(error.value)


def test_a_path_alone_is_that_of_prepared_data():
    data = {"system": "mdlm", "data": {"path": "data/book"}}
    assert parse_recipe(data, PretrainRecipe, "here").data == DataSettings(kind="prepared", path="data/book")
    assert DataSettings(path="data/book").kind == "prepared"
    assert DataSettings().kind == "tales"


def test_recipes_are_found_by_name_or_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_recipe("tales-mdlm").name == "tales-mdlm.yaml"
    assert find_recipe("tales-mdlm.yaml").name == "tales-mdlm.yaml"
    assert find_recipe("recipes/pretrain/tales-mdlm.yaml") == find_recipe("tales-mdlm")
    with pytest.raises(ValueError, match=r"no recipe file 'recipes/adapt/tales-mlm.yaml'; did you mean 'tales-mdlm'"):
        find_recipe("recipes/adapt/tales-mlm.yaml")
    with pytest.raises(ValueError, match=r"there is no recipe file 'recipes/tales-mdlm\.yaml'"):
        find_recipe("recipes/tales-mdlm.yaml")
    Path("mine.yaml").write_text("system: mdlm")
    assert find_recipe("mine.yaml") == Path("mine.yaml")
    with pytest.raises(ValueError, match="there is no recipe file 'tales-mlm'; did you mean 'tales-mdlm'"):
        find_recipe("tales-mlm")
    with pytest.raises(ValueError, match="is a directory"):
        find_recipe(".")
    Path("tales-mdlm").mkdir()
    assert find_recipe("tales-mdlm").name == "tales-mdlm.yaml", "a run may bear the name of its recipe"
    with pytest.raises(ValueError, match=r"those that come with the package: .*tales-mdlm"):
        find_recipe("elsewhere/zzz.yaml")


def test_a_recipe_names_its_command():
    """It may leave it out; what it says must be true."""
    assert parse_recipe({"command": "pretrain", **tiny()}, PretrainRecipe, "here") == parse_recipe(
        tiny(), PretrainRecipe, "here"
    )
    with pytest.raises(ValueError, match=r"here: this is a recipe of pretrain, not of adapt"):
        parse_recipe({"command": "pretrain", **tiny()}, AdaptRecipe, "here")
    with pytest.raises(ValueError, match=r"here: command must be one of pretrain, adapt, couple, distill; got 'adopt'"):
        parse_recipe({"command": "adopt", **tiny()}, PretrainRecipe, "here")
