"""Checkpoints as files: save, load, import from the Hub's layout and from Lightning, export."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from multimdm.cli.main import main
from multimdm.data.trained_tokenizers import train_chars
from multimdm.models import DiT, DiTConfig, expand_masks
from multimdm.pipeline import Model, load
from multimdm.pipeline.exchange import export_checkpoint, import_checkpoint
from multimdm.process import MultiMask, Schedule, Uniform, random_balanced
from support.hub_stand_in import Repository, hub_stand_in

GOLDEN = Path(__file__).parents[1] / "golden"
KINDS = pytest.mark.parametrize("kind", ["mdlm", "duo"])
TINY: dict[str, Any] = {
    "vocab_size": 11,
    "hidden_dim": 16,
    "num_blocks": 1,
    "num_heads": 2,
    "cond_dim": 8,
    "max_length": 12,
}


def hub(kind: str) -> Path:
    return GOLDEN / f"{kind}_dit"


@KINDS
def test_import_save_load_export(kind, tmp_path):
    assert main(["import", str(hub(kind)), "--kind", kind, "--out", str(tmp_path / "ours")]) == 0
    model = load(tmp_path / "ours")
    assert isinstance(model.process, Uniform if kind == "duo" else MultiMask)
    assert isinstance(model.network, DiT)
    assert model.network.config.conditioning == ("sigma" if kind == "duo" else "none")
    assert main(["export", str(tmp_path / "ours"), "--out", str(tmp_path / "back")]) == 0
    before, after = (load_file(d / "model.safetensors") for d in (hub(kind), tmp_path / "back"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    again = import_checkpoint(tmp_path / "back", kind)
    ids = load_file(hub(kind) / "expected.safetensors")["input_ids"]
    assert torch.equal(again.network(ids, 0.5), model.network(ids, 0.5))


def lightning(kind: str, path: Path, prefix: str = "backbone.", ema: bool = True, **extra) -> dict[str, torch.Tensor]:
    """A file as Lightning writes it; the moving average is twice the weights."""
    state = {key.replace("backbone.", prefix): x for key, x in ordered(kind).items()}
    content: dict = {"state_dict": state, "epoch": 3} | extra
    if ema:
        shadow = [2 * x for key, x in state.items() if not key.endswith("inv_freq")]
        content["ema"] = {"decay": 0.9999, "num_updates": 7, "shadow_params": shadow}
    torch.save(content, path)
    return state


def ordered(kind: str) -> dict[str, torch.Tensor]:
    """The tensors in the order of the modules, which safetensors does not keep."""
    tensors = load_file(hub(kind) / "model.safetensors")
    with torch.device("meta"):
        names = DiT(DiTConfig(vocab_size=101, hidden_dim=64, num_blocks=2, num_heads=4, cond_dim=32)).state_dict()
    return {f"backbone.{name}": tensors[f"backbone.{name}"] for name in names}


@KINDS
@pytest.mark.parametrize("prefix", ["backbone.", "backbone._orig_mod.", "backbone.backbone."])
def test_lightning_checkpoints_give_the_moving_average(kind, prefix, tmp_path):
    state = lightning(kind, tmp_path / "last.ckpt", prefix)
    model = import_checkpoint(tmp_path / "last.ckpt", kind)
    expected = 2 * state[f"{prefix}blocks.1.mlp.0.weight"]
    assert torch.equal(model.network.state_dict()["blocks.1.mlp.0.weight"], expected)
    assert torch.equal(model.network.state_dict()["rotary_emb.inv_freq"], state[f"{prefix}rotary_emb.inv_freq"])
    assert model.lineage[0]["weights"] == "moving average"
    lightning(kind, tmp_path / "raw.ckpt", prefix, ema=False)
    raw = import_checkpoint(tmp_path / "raw.ckpt", kind)
    assert torch.equal(raw.network.state_dict()["blocks.1.mlp.0.weight"] * 2, expected)


def test_save_and_load_keep_everything(tmp_path):
    process = MultiMask(11, 3, Schedule(rho=0.7, kind="cosine"), random_balanced(11, 3, seed=5))
    network = DiT(DiTConfig(**TINY, num_masks=3, conditioning="time")).eval()
    torch.nn.init.normal_(network.output_layer.linear.weight)
    Model(network, process, lineage=({"pretrained": {"steps": 5}},)).save(tmp_path / "m")
    model = load(tmp_path / "m")
    assert isinstance(model.process, MultiMask)
    assert torch.equal(model.process.assignment, process.assignment)
    assert model.process.schedule == process.schedule
    assert model.lineage == ({"pretrained": {"steps": 5}},)
    ids = torch.randint(0, 14, (2, 6))
    assert torch.equal(model.network(ids, 0.3), network(ids, 0.3))


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    def full_disk(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("multimdm.pipeline.files.save_file", full_disk)
    with pytest.raises(OSError, match="No space left"):
        Model(DiT(DiTConfig(**TINY)), MultiMask(11, 1)).save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def bad_files(tmp_path: Path) -> dict[str, tuple[Path, str]]:
    """What a user may hand over, and what should be said."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(hub("mdlm"), tmp_path / name))

    no_config, no_json, no_weights, damaged = (copy(name) for name in ("a", "b", "c", "d"))
    (no_config / "config.json").unlink()
    (no_json / "config.json").write_text("{")
    (no_weights / "model.safetensors").unlink()
    (damaged / "model.safetensors").write_bytes(b"not weights")
    (tmp_path / "text.ckpt").write_text("hello")
    torch.save({"weights": 1}, tmp_path / "other.ckpt")
    torch.save({"state_dict": {}, "callbacks": Path}, tmp_path / "pickle.ckpt")
    state = lightning("mdlm", tmp_path / "short.ckpt", ema=False)
    torch.save({"state_dict": state, "ema": {"shadow_params": list(state.values())[:3]}}, tmp_path / "short.ckpt")
    return {
        "no such place": (tmp_path / "nowhere", "must be a directory with config.json"),
        "no config": (no_config, "config.json is missing"),
        "broken config": (no_json, "is not JSON"),
        "no weights": (no_weights, "model.safetensors is missing"),
        "damaged weights": (damaged, "is not a safetensors file"),
        "text": (tmp_path / "text.ckpt", "cannot be read safely"),
        "other content": (tmp_path / "other.ckpt", "has no 'state_dict'"),
        "pickled objects": (tmp_path / "pickle.ckpt", "save its 'state_dict' and 'ema' alone"),
        "short average": (tmp_path / "short.ckpt", "'ema' has 3 tensors for"),
    }


def test_bad_files_are_refused_and_nothing_is_written(tmp_path, capsys):
    for name, (path, message) in bad_files(tmp_path).items():
        assert main(["import", str(path), "--kind", "mdlm", "--out", str(tmp_path / "out")]) == 2, name
        assert message in capsys.readouterr().err, name
        assert not (tmp_path / "out").exists()


def test_an_existing_place_is_not_overwritten(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    assert main(["import", str(hub("mdlm")), "--kind", "mdlm", "--out", str(tmp_path / "out")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["thesis.tex"]


def test_what_cannot_be_exported(tmp_path):
    with pytest.raises(ValueError, match="only a checkpoint that was imported can be exported"):
        export_checkpoint(Model(DiT(DiTConfig(**TINY)), MultiMask(11, 1)), tmp_path / "out")
    model = import_checkpoint(hub("mdlm"), "mdlm")
    assert isinstance(model.network, DiT)
    model.network = expand_masks(model.network, 4)
    with pytest.raises(ValueError, match="a mdlm checkpoint has 1 masks; this network has 4"):
        export_checkpoint(model, tmp_path / "out")


def test_a_misspelt_setting_is_named(tmp_path):
    Model(DiT(DiTConfig(**TINY)), MultiMask(11, 1)).save(tmp_path / "m")
    config = tmp_path / "m" / "config.json"
    config.write_text(config.read_text().replace('"hidden_dim"', '"hiden_dim"'))
    with pytest.raises(ValueError, match=r"config.json: network\.\w+"):
        load(tmp_path / "m")


def test_a_tokenizer_is_stored_beside_the_network(tmp_path):
    tokenizer = train_chars(["".join(map(chr, range(200, 200 + 96)))])
    assert tokenizer.vocab_size == 100  # with its special tokens
    (tmp_path / "tok").mkdir()
    tokenizer.save(tmp_path / "tok")
    arguments = ["--kind", "mdlm", "--tokenizer", str(tmp_path / "tok"), "--out", str(tmp_path / "m")]
    assert main(["import", str(hub("mdlm")), *arguments]) == 0
    loaded = load(tmp_path / "m").tokenizer
    assert loaded is not None
    assert loaded.fingerprint == tokenizer.fingerprint


def test_a_tokenizer_of_another_vocabulary_is_refused():
    with pytest.raises(ValueError, match="has 11 tokens, the checkpoint 100: it is another one's"):
        import_checkpoint(hub("mdlm"), "mdlm", tokenizer=train_chars(["abcdefg"]))


def test_load_guesses_nothing(tmp_path):
    Model(DiT(DiTConfig(**TINY)), MultiMask(11, 1)).save(tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    good = load_file(file)
    save_file({name: x for name, x in good.items() if name != "process.assignment"}, file)
    with pytest.raises(ValueError, match=r"lacks 'process\.assignment'"):
        load(tmp_path / "m")
    save_file(good | {"junk": torch.zeros(1)}, file)
    with pytest.raises(ValueError, match="a tensor of unknown purpose, 'junk'"):
        load(tmp_path / "m")
    save_file(good, file)
    config = tmp_path / "m" / "config.json"
    text = config.read_text()
    config.write_text(text[: text.index('"process"')] + text[text.index('"process"') :].replace("11", "12", 1))
    with pytest.raises(ValueError, match=r"the network has V, M = \(11, 1\) and the process \(12, 1\)"):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"state_dict": []}, "has no 'state_dict' of tensors"),
        ({"state_dict": {"backbone.x": 1}}, "has no 'state_dict' of tensors"),
        ({"state_dict": {"backbone.x": torch.zeros(1)}, "ema": {"decay": 1}}, "'ema' has no list of tensors"),
        (
            {"state_dict": {"backbone.x": torch.zeros(1)}, "ema": {"shadow_params": [torch.zeros(1)] * 2}},
            "2 tensors for 1",
        ),
    ],
)
def test_odd_lightning_files(content, message, tmp_path):
    torch.save(content, tmp_path / "odd.ckpt")
    with pytest.raises(ValueError, match=message):
        import_checkpoint(tmp_path / "odd.ckpt", "mdlm")


@pytest.mark.parametrize("setting", ['"time_conditioning": "false"', '"model_length": null', '"dropout": "a"'])
def test_odd_settings_are_named(setting, tmp_path):
    shutil.copytree(hub("mdlm"), tmp_path / "odd")
    (tmp_path / "odd" / "config.json").write_text("{" + setting + "}")
    with pytest.raises(ValueError, match=f"config.json: {setting.split(chr(34))[1]} has a value that makes no sense"):
        import_checkpoint(tmp_path / "odd", "mdlm")


def test_names_on_the_hub(tmp_path, monkeypatch):
    with hub_stand_in(monkeypatch, tmp_path / "cache") as server:
        files = {path.name: path.read_bytes() for path in hub("mdlm").iterdir()}
        repo = server.repositories["org/mdlm"] = Repository(private=False)
        repo.commit("main", {**files, "modeling_mdlm.py": b"raise SystemExit"}, "published")
        import_checkpoint(Path("org/mdlm"), "mdlm").save(tmp_path / "m")
        assert not list((tmp_path / "cache").rglob("*.py"))
        assert isinstance(load(tmp_path / "m").process, MultiMask)
        with pytest.raises(ValueError, match=r"org/other is neither a directory here nor .* \(there is no such repo"):
            load("org/other")
