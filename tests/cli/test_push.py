"""`multimdm push` and `multimdm card`."""

import json

import pytest

import multimdm
from multimdm.cli.main import main
from multimdm.pipeline.builtin_cards import builtin_card
from support.hub_stand_in import hub_stand_in
from support.tiny_models import tales_model

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the Hub's client


@pytest.fixture
def checkpoint(tmp_path):
    tales_model().save(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A checkpoint and its results."""
    place = tmp_path_factory.mktemp("measured")
    tales_model().save(place / "model")
    command = ["evaluate", str(place / "model"), "--steps", "1", "2", "--num", "6", "--sequences", "8", "--nelbo"]
    assert main([*command, "--out", str(place)]) == 0
    results = json.loads((place / "results.json").read_text())
    aligned = {"target": 2.0, "reached": False, "trials": [], "measurement": results["measurements"][0]}
    (place / "results.json").write_text(json.dumps({**results, "aligned": [aligned]}))  # a search takes long
    return str(place / "model"), place / "results.json"


def test_a_checkpoint_is_pushed_with_its_card(checkpoint, monkeypatch, tmp_path, capsys):
    with hub_stand_in(monkeypatch, tmp_path / "cache") as hub:
        options = ["--private", "--revision", "dev", "--message", "mine", "--license", "mit"]
        assert main(["push", checkpoint, "org/name", *options]) == 0
        repo = hub.repositories["org/name"]
        assert repo.private
        assert repo.messages[-1] == "mine"
        assert f"pushed {checkpoint} to {hub.address}/org/name/commit/{repo.branches['dev']}" in capsys.readouterr().out
        files = repo.files("dev") or {}
        assert b"license: mit" in files["README.md"]
        assert b'multimdm.load("org/name@dev")' in files["README.md"]
        assert main(["push", checkpoint, "org/name", "--revision", "dev", "--keep-card"]) == 0
        assert (repo.files("dev") or {})["README.md"] == files["README.md"]
        assert multimdm.load("org/name@dev").tokenizer is not None


def test_a_dry_run_sends_nothing(checkpoint, capsys, monkeypatch):
    monkeypatch.setattr("multimdm.pipeline.hub.hub_silence", lambda *_: pytest.fail("the Hub was asked"))
    assert main(["push", checkpoint, "org/name", "--dry-run"]) == 0
    out = capsys.readouterr().out
    for name in ("config.json", "model.safetensors", "tokenizer.json", "README.md", "library_name: multimdm"):
        assert name in out


def test_a_wrong_name_is_refused_before_anything_is_read(capsys):
    assert main(["push", "nowhere", "name"]) == 2
    assert "repo must be a name on the Hub such as org/name" in capsys.readouterr().err


def test_figures_are_those_of_the_results(measured, capsys):
    checkpoint, path = measured
    assert main(["card", checkpoint, "--name", "org/name", "--results", str(path)]) == 0
    text, results = capsys.readouterr().out, json.loads(path.read_text())
    assert "GenPPL is by the judge `tales`. 6 samples of 48 tokens, sampling seed 0, one training seed" in text
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith(("| 1 |", "| 2 |"))]
    every = [*results["measurements"], *(one["measurement"] for one in results["aligned"])]
    assert len(rows) == len(every) == 3
    for row, one in zip(rows, every, strict=True):
        assert float(row[3].split(" [")[0].replace(",", "")) == pytest.approx(one["gen_ppl"]["value"], rel=1e-3)
        assert row[4].startswith(f"{one['entropy']['value']:.3f} [{one['entropy']['low']:.3f}, ")
    assert f"{results['nelbo']['total']:.4f} ± {results['nelbo']['standard_error']:.4f} nats per token" in text
    assert [row[-1].strip(" |") for row in rows] == ["", "", "at the entropy 2.000, as near as temperatures come"]


def test_figures_of_another_checkpoint_are_refused(measured, tmp_path, capsys):
    tales_model(seed=5).save(tmp_path / "other")
    assert main(["card", str(tmp_path / "other"), "--results", str(measured[1])]) == 2
    assert "has the figures of another checkpoint" in capsys.readouterr().err
    (tmp_path / "results.json").write_text('{"fingerprint": "a"}')
    assert main(["card", measured[0], "--results", str(tmp_path / "results.json")]) == 2
    assert "is not what `multimdm evaluate --out` writes: measurements" in capsys.readouterr().err


def test_a_card_is_written_once(checkpoint, tmp_path, capsys):
    command = ["card", checkpoint, "--out", str(tmp_path / "cards" / "README.md")]
    assert main(command) == 0
    assert (tmp_path / "cards" / "README.md").read_text().startswith("---\nlibrary_name: multimdm\n")
    assert main(command) == 2
    assert "exists already" in capsys.readouterr().err


def test_the_card_of_a_built_in_model_has_its_figures_and_a_way_that_needs_no_hub(capsys):
    assert main(["card", "tales"]) == 0
    text = capsys.readouterr().out
    assert 'multimdm.hf.MultiMDMModel.from_pretrained("tales")' in text
    assert "AutoModel" not in text
    first = builtin_card("tales").figures[0]
    assert f"| 1 | {first.gen_ppl.value:.3g} [" in text
