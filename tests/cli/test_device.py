"""Wherever a network is run without a word about the device, a GPU is taken if there is one."""

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from lm_eval.api.registry import get_model

from multimdm.cli.main import COMMANDS, open_command
from multimdm.evaluation.harness import lm
from multimdm.evaluation.settings import Drawing
from multimdm.evaluation.store import Store
from multimdm.evaluation.subject import Subject
from multimdm.own_text.budget import Request
from multimdm.own_text.running import shown
from multimdm.pipeline import model as loading
from multimdm.serving.catalog import open_checkpoints
from support.tiny_llada import chat_tokenizer, tiny_llada, write_llada
from support.tiny_models import tales_model

WITHOUT_NETWORKS = ("prepare", "entropy", "import", "export", "push", "card", "recipes", "info", "models", "completion")
BY_RANK = ("quickstart", "train-text", "pretrain", "adapt", "couple", "distill", "reproduce")
"""Training takes the device of its rank; what these measure is asked for below, and by reproduce/test_benchmarks.py."""


@pytest.fixture
def base(tmp_path) -> Path:
    write_llada(tmp_path / "base", tiny_llada(), chat_tokenizer())
    return tmp_path / "base"


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """The devices that checkpoints are asked for."""
    names: list[str] = []

    def find_device(name: str) -> torch.device:
        names.append(name)
        return torch.device("cpu")

    monkeypatch.setattr(loading, "find_device", find_device)
    return names


@pytest.mark.parametrize("command", [*COMMANDS, "harness"])
def test_every_command_says_auto_or_runs_no_network(command):
    options = open_command(command).options
    defaults = {field.name: field.default for field in fields(options)}
    expected = None if command in (*WITHOUT_NETWORKS, *BY_RANK) else "auto"
    assert defaults.get("device") == expected


def test_the_harness_by_itself(base, asked):
    """Its program hands over None where nothing was said."""
    assert lm.NAME
    get_model("multimdm").create_from_arg_string(f"checkpoint={base},gen_length=8", {"batch_size": 2, "device": None})
    assert asked == ["auto"]


def test_measurements(base, asked):
    Subject.open(str(base), None, Drawing(), Store(None))
    assert asked == ["auto"]


def test_the_server(base, asked):
    open_checkpoints([str(base)])
    assert asked == ["auto"]


def test_the_texts_that_train_text_ends_with(tmp_path, asked):
    tales_model().save(tmp_path / "model")
    assert len(shown(Request(tmp_path / "data", tmp_path))) > 0
    assert asked == ["auto"]
