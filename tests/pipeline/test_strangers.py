"""Checkpoints of strangers: refused in one sentence, before anything is allocated, and nothing outside is opened."""

import importlib.util
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import multimdm
from multimdm._files import DEEPEST, MOST_BYTES, read_json
from multimdm.models import DiT, DiTConfig
from multimdm.pipeline import Model
from multimdm.process import MultiMask
from multimdm.training.recipes import read_yaml
from support.tiny_models import tales_model

FUZZER = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"


@pytest.fixture
def checkpoint(tmp_path):
    tales_model().save(tmp_path / "model")
    return tmp_path / "model"


def edit(checkpoint, section, key, value):
    config = json.loads((checkpoint / "config.json").read_text())
    config[section][key] = value
    (checkpoint / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("name", ["vocab_size", "num_masks", "hidden_dim", "num_blocks", "cond_dim", "max_length"])
@pytest.mark.parametrize("size", [2**40, 2**63, -1, 0])
def test_sizes_are_compared_with_the_tensors(name, size, checkpoint):
    edit(checkpoint, "network", name, size)
    if name in ("vocab_size", "num_masks"):
        edit(checkpoint, "process", name, size)
    with pytest.raises(ValueError, match=r"config.json|safetensors|V, M") as error:
        multimdm.load(checkpoint)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_a_wrong_shape_names_the_tensor_and_both_sizes(checkpoint):
    edit(checkpoint, "network", "hidden_dim", 64)
    with pytest.raises(
        ValueError, match=r"'network.vocab_embed.embedding' has shape \[407, 32\]; its config.json says"
    ):
        multimdm.load(checkpoint)


@pytest.mark.parametrize("value", [2**31, 2**70])
def test_advice_of_endless_steps(value, checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    config["advice"] = {"steps": value}
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="steps must be at most 1,048,576"):
        multimdm.load(checkpoint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "is nested too deeply"),
        ('{"a":' * 100 + "1" + "}" * 100, f"is nested deeper than {DEEPEST} levels"),
        ("{", "is not JSON"),
        ("[]", "must hold a JSON object; it holds a list"),
        ("9" * 5000, "is not JSON"),
        ('{"a": 1', "is not JSON"),
    ],
)
def test_json_that_is_none(text, message, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_json(path)
    assert str(path) in str(error.value)


def test_json_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)  # a hole, which takes no room
    with pytest.raises(ValueError, match="bytes; a file of this kind has"):
        read_json(path)


def test_a_recipe_that_unfolds(tmp_path):
    path = tmp_path / "laughs.yaml"
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))]
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match="holds more than 10,000 values"):
        read_yaml(path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_links_out_of_the_directory(name, checkpoint, tmp_path):
    outside = tmp_path / "outside"
    (checkpoint / name).rename(outside)
    (checkpoint / name).symlink_to(outside)
    with pytest.raises(ValueError, match=f"{name} is a link to a place outside of the checkpoint"):
        multimdm.load(checkpoint)


def test_links_of_the_owner_and_of_the_hub_are_followed(checkpoint, tmp_path):
    (tmp_path / "latest").symlink_to(checkpoint)
    assert multimdm.load(tmp_path / "latest").process is not None
    cache = tmp_path / "models--a--b"
    (cache / "snapshots" / "123").mkdir(parents=True)
    (cache / "blobs").mkdir()
    for number, file in enumerate(checkpoint.iterdir()):
        file.rename(cache / "blobs" / str(number))
        (cache / "snapshots" / "123" / file.name).symlink_to(Path("..") / ".." / "blobs" / str(number))
    assert multimdm.load(cache / "snapshots" / "123").process is not None


def test_a_pipe_does_not_hang(checkpoint):
    (checkpoint / "config.json").unlink()
    os.mkfifo(checkpoint / "config.json")
    (checkpoint / "masks.json").touch()
    with pytest.raises(ValueError, match=r"config\.json is not a file"):
        multimdm.load(checkpoint)


def test_pickles_are_refused(checkpoint):
    (checkpoint / "model.safetensors").unlink()
    with (checkpoint / "pytorch_model.bin").open("wb") as file:
        pickle.dump({}, file)
    with pytest.raises(ValueError, match=r"pytorch_model\.bin beside it is a pickle"):
        multimdm.load(checkpoint)


def test_an_index_cannot_lead_elsewhere(tmp_path):
    from support.tiny_llada import tiny_llada, write_llada

    network = tiny_llada()
    directory = write_llada(tmp_path / "llada", network, shard_bytes=20_000)
    write_llada(tmp_path / "outside", network)
    index = directory / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"] = dict.fromkeys(content["weight_map"], "../outside/model.safetensors")
    index.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="weight_map must name safetensors files beside it"):
        multimdm.load(directory)


def test_loading_takes_less_than_twice_the_file(tmp_path):
    """Beyond what an interpreter with the package has."""
    config = DiTConfig(vocab_size=60_000, num_masks=1, hidden_dim=256, num_blocks=1, num_heads=2, cond_dim=8)
    Model(DiT(config), MultiMask(60_000, 1)).save(tmp_path / "model")
    code = (
        "import resource, sys, multimdm, torch; from multimdm.pipeline import load; torch.set_num_threads(1)\n"
        "import multimdm.models.dit, multimdm.models.llada, multimdm.pipeline.generation\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"model = load({str(tmp_path / 'model')!r})\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    size = (tmp_path / "model" / "model.safetensors").stat().st_size
    assert int(result.stdout) < 2 * size


def test_mutants_load_or_are_refused_in_one_sentence():
    """A short version of benchmarks/fuzz.py, in a process of its own."""
    result = subprocess.run(
        [sys.executable, str(FUZZER), "--mutants", "400", "--seed", "3"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout
    assert "0 failed" in result.stdout


def test_the_fuzzer_sees_what_is_wrong(tmp_path, monkeypatch):
    """Loaders that fail in each of the ways that it looks for."""
    spec = importlib.util.spec_from_file_location("fuzz", FUZZER)
    assert spec is not None
    assert spec.loader is not None
    fuzz = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fuzz", fuzz)
    spec.loader.exec_module(fuzz)
    monkeypatch.setattr(fuzz.safetensors, "safe_open", fuzz.safetensors.safe_open)  # put back afterwards
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("x")
    watch = fuzz.Watch(tmp_path)

    def wrong(load):
        return fuzz.attempt(fuzz.Target("x", inside / "x", load, "json"), watch)[1]

    def raising(error):
        def load():
            raise error

        return load

    assert wrong(lambda: None) == ""
    assert wrong(raising(ValueError("plain"))) == ""
    assert "KeyError" in wrong(raising(KeyError("x")))
    assert "no plain line" in wrong(raising(ValueError("two\nlines")))
    assert "no plain line" in wrong(raising(ValueError("\x1b[31m")))
    assert "5000 characters" in wrong(raising(ValueError("a" * 5000)))
    assert "without words" in wrong(raising(ValueError()))
    assert "opened" in wrong(lambda: (tmp_path / "secret").read_text())
    assert fuzz.mutant(fuzz.Target("x", inside / "x", int, "json"), b'{"a": 1}', fuzz.random.Random(1)) != b'{"a": 1}'
