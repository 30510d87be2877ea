"""Checkpoints on the Hub: up and down, revisions, private repositories, and no Hub at all."""

import socket
import time
from pathlib import Path

import pytest

import multimdm
from multimdm.data import hub_silence
from multimdm.pipeline.hub import local_directory
from support.hub_stand_in import TOKEN, StandIn, hub_stand_in, point_client_at
from support.tiny_models import causal_tales_model, shown_tales_model, tales_model

# The client of the Hub hands files to its HTTP library in a way that this one deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with hub_stand_in(monkeypatch, tmp_path / "cache") as server:
        yield server


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_up_and_down_byte_for_byte(hub: StandIn, tmp_path):
    model = shown_tales_model()
    model.save(tmp_path / "ours")
    address = model.push_to_hub("org/name", commit_message="first")
    repo = hub.repositories["org/name"]
    assert address.endswith(repo.branches["main"])
    assert repo.messages[-1] == "first"
    assert not repo.private
    pushed = repo.files("main")
    assert pushed is not None
    card = pushed.pop("README.md").decode()
    assert 'multimdm.load("org/name")' in card
    assert pushed == contents(tmp_path / "ours")
    fetched = contents(local_directory("org/name"))
    assert fetched == pushed
    multimdm.load("org/name").save(tmp_path / "again")
    assert contents(tmp_path / "again") == pushed


def test_files_of_an_earlier_checkpoint_go_and_others_stay(hub: StandIn):
    model = tales_model()
    model.push_to_hub("org/name")
    repo = hub.repositories["org/name"]
    files = repo.files("main") or {}
    others = {"notes.json": b"{}", "onnx/model.safetensors": b"x"}
    repo.commit("main", {**files, **others, "cells.safetensors": b"of another model", "README.md": b"mine"}, "by hand")
    causal_tales_model().push_to_hub("org/name", card=None)
    files = repo.files("main") or {}
    assert "cells.safetensors" not in files
    assert files["README.md"] == b"mine"
    assert others.items() <= files.items()
    assert multimdm.load("org/name").process is None


def test_revisions(hub: StandIn):
    first, second = tales_model(seed=1), tales_model(seed=2)
    first.push_to_hub("org/name")
    tag = hub.repositories["org/name"].branches["main"]
    second.push_to_hub("org/name")
    causal_tales_model().push_to_hub("org/name", revision="dev/ar", card="text of mine")
    texts = [model.sample(1, 8, steps=2).texts for model in (first, second)]
    assert multimdm.load(f"org/name@{tag}").sample(1, 8, steps=2).texts == texts[0]
    assert multimdm.load("org/name", revision=tag).sample(1, 8, steps=2).texts == texts[0]
    assert multimdm.load("org/name").sample(1, 8, steps=2).texts == texts[1]
    assert multimdm.load("org/name@dev/ar").process is None
    assert (hub.repositories["org/name"].files("dev/ar") or {})["README.md"] == b"text of mine"
    with pytest.raises(ValueError, match=r"org/name@none is neither .* \(there is no such revision\)$"):
        multimdm.load("org/name@none")
    with pytest.raises(ValueError, match=r"revision must be that of the name, 'a', or left out; got 'b'"):
        multimdm.load("org/name@a", revision="b")


def test_revisions_are_for_names(tmp_path):
    tales_model().save(tmp_path / "here")
    with pytest.raises(ValueError, match=r"revision is for names on the Hub; .*here is none: leave out 'main'"):
        multimdm.load(tmp_path / "here", revision="main")


def test_a_run_without_a_model_yet(tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(
        ValueError, match="run is a run that has not ended and has no model yet; the same command goes on"
    ):
        multimdm.load(tmp_path / "run")


def test_private_repositories_need_the_token(hub: StandIn, monkeypatch, tmp_path):
    tales_model().push_to_hub("org/name", private=True)
    assert hub.repositories["org/name"].private
    assert multimdm.load("org/name").tokenizer is not None
    point_client_at(monkeypatch, tmp_path / "another cache", hub.address, token=None)
    with pytest.raises(ValueError, match=r"org/name is neither .* \(there is no such repository, or it is private: "):
        multimdm.load("org/name")
    with pytest.raises(ValueError, match=r"^org/name cannot be pushed \(it is not allowed \(401\): log in with "):
        tales_model().push_to_hub("org/name")
    assert local_directory("org/name", token=TOKEN).is_dir()


@pytest.mark.parametrize("repo", ["name", "org/name@main", "a/b/c", "./name"])
def test_names_to_push_to(repo):
    with pytest.raises(ValueError, match="repo must be a name on the Hub such as org/name, without a revision; got"):
        tales_model().push_to_hub(repo)


def test_without_a_hub_what_was_fetched_before_is_used(monkeypatch, tmp_path):
    with hub_stand_in(monkeypatch, tmp_path / "cache"):
        tales_model().push_to_hub("org/name")
        fetched = local_directory("org/name")
    assert local_directory("org/name") == fetched
    with pytest.raises(ValueError, match=r"^org/other is neither .* \(the Hub cannot be reached: .*\)$"):
        local_directory("org/other")


def test_a_hub_that_is_silent_is_not_waited_for(monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        point_client_at(monkeypatch, tmp_path / "cache", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr("multimdm.data.hub_silence.PATIENCE", 0.3)
        start = time.monotonic()
        with pytest.raises(ValueError, match=r"^org/name is neither .* \(the Hub .*\)$") as caught:
            multimdm.load("org/name")
        assert "\n" not in str(caught.value)
        with pytest.raises(ValueError, match=r"^org/name cannot be pushed \(the Hub .*\)$"):
            tales_model().push_to_hub("org/name")
        assert time.monotonic() - start < 2


def test_a_slow_look_up_of_the_address_is_not_waited_for(monkeypatch, tmp_path):
    point_client_at(monkeypatch, tmp_path / "cache", "http://slow.invalid")
    monkeypatch.setattr("multimdm.data.hub_silence.PATIENCE", 0.2)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: time.sleep(1))
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"\(the Hub does not answer within 0.2 seconds\)$"):
        multimdm.load("org/name")
    assert time.monotonic() - start < 0.9


def test_the_usual_patience_is_within_five_seconds():
    assert hub_silence.PATIENCE < 5
