"""Models that come with the package: found by name from anywhere, whole, small, and known to every command."""

import json

import pytest

from multimdm import load
from multimdm.builtin import CARD, SERVED, USUAL, builtin_directory, builtin_names, builtin_root
from multimdm.cli.main import main
from multimdm.data import Tales
from multimdm.pipeline import builtin_cards
from multimdm.pipeline.builtin_cards import altered_files, builtin_card
from multimdm.pipeline.hub import local_directory
from multimdm.pipeline.tensor_file import TensorFile
from support.tiny_models import tales_model


def test_the_three_models_are_there():
    assert builtin_names()[0] == USUAL
    assert set(builtin_names()) == {"tales", "tales-mdlm", "tales-ar"}
    assert set(SERVED) <= set(builtin_names())


@pytest.mark.parametrize("name", builtin_names())
def test_files_are_what_the_card_says(name):
    assert altered_files(name) == []
    assert builtin_card(name).name == name


def test_a_changed_file_is_noticed(tmp_path, monkeypatch):
    name = builtin_names()[0]
    source = builtin_directory(name)
    assert source is not None
    for path in source.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(builtin_cards, "builtin_directory", lambda _: tmp_path)
    assert altered_files(name) == []
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0\0")
    (tmp_path / "stranger.txt").write_text("x")
    (tmp_path / "tokenizer_config.json").unlink()
    assert altered_files(name) == ["model.safetensors", "stranger.txt", "tokenizer_config.json"]


def test_they_are_small_and_in_half_precision():
    size = sum(path.stat().st_size for path in builtin_root().glob("*/*"))
    assert size <= 10_000_000
    for name in builtin_names():
        tensors = TensorFile(builtin_root() / name / "model.safetensors")
        assert all(tensors.dtypes[key] == "F16" for key in tensors if tensors.is_float(key))


@pytest.mark.parametrize("name", builtin_names())
def test_a_model_by_its_name_writes(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = load(name)
    samples = model.sample(num=2, steps=2)
    assert samples.nfe == (2 if model.process is not None else 48)
    assert len(set(samples.texts)) == 2
    assert all(len(text.split()) > 20 for text in samples.texts)


def test_cards_and_checkpoints_tell_no_paths():
    for path in [*builtin_root().glob("*/card.json"), *builtin_root().glob("*/config.json")]:
        assert "/" not in path.read_text(encoding="utf-8"), path


def test_a_checkpoint_here_goes_before_and_a_folder_of_other_things_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tales").mkdir()
    (tmp_path / "tales" / "notes.txt").write_text("no checkpoint")
    assert local_directory("tales") == builtin_directory("tales")
    tales_model().save(tmp_path / "tales" / "model")
    assert local_directory("tales").resolve() == tmp_path / "tales" / "model"


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(ValueError, match="there is no built-in model 'tale'; there are: tales, "):
        builtin_card("tale")


def test_sample_without_a_checkpoint(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["sample", "--num", "1", "--steps", "2", "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["settings"]["checkpoint"] == USUAL
    assert found["nfe"] == 2
    assert "by 2 network calls" in said.err


def test_prompts_are_kept(capsys):
    assert main(["sample", "--num", "2", "--steps", "2", "--prompt", "Lily raced to the harbor", "--json"]) == 0
    for sample in json.loads(capsys.readouterr().out)["samples"]:
        assert sample["text"].startswith("Lily raced to the harbor")


def test_models_lists_them_with_their_cards(capsys):
    assert main(["models"]) == 0
    text = capsys.readouterr().out
    for name in builtin_names():
        card = builtin_card(name)
        assert f"{name}: {card.says}" in text
        assert card.sha256["model.safetensors"] in text
        assert card.commit in text
        for stage in card.stages:
            assert f"multimdm {stage.command}, recipe {stage.recipe}, seed {stage.seed}: {stage.steps:,} steps" in text
    assert main(["models", "tales", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert only == json.loads((builtin_root() / "tales" / CARD).read_text(encoding="utf-8"))
    assert main(["models", "nothing"]) == 2


def test_the_vocabulary_is_that_of_tales():
    for name in builtin_names():
        assert load(name).network.config.vocab_size == Tales().vocab_size
