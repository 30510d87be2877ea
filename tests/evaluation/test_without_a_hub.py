"""Names on the Hub where there is none: one sentence, at once, whatever the name is for."""

import os
import socket
import subprocess
import sys
import time

import pytest
import torch

from multimdm.data.documents import Reading
from multimdm.data.foreign_tokenizers import load_tokenizer
from multimdm.data.sources import open_source
from multimdm.evaluation.language_models import find_language_model
from support.hub_stand_in import point_client_at


def tokenizer() -> object:
    return load_tokenizer("org/name")


def data_set() -> object:
    return list(open_source("hf:org/name", Reading()).documents(lambda _: None))


def judge() -> object:
    return find_language_model("org/name", torch.device("cpu"), "judge")


@pytest.mark.parametrize("ask", [tokenizer, data_set, judge])
def test_nobody_listens(ask, monkeypatch, tmp_path, caplog):
    """The client by itself tries six times, with ever longer pauses, and says so every time."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    point_client_at(monkeypatch, tmp_path / "cache", f"http://127.0.0.1:{port}")
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"\(the Hub cannot be reached: .*\)") as caught:
        ask()
    assert time.monotonic() - start < 5
    assert "\n" not in str(caught.value)
    assert "Retrying" not in caplog.text


TOKENIZER = "from multimdm.data.foreign_tokenizers import load_tokenizer as ask"
DATA_SET = """
from multimdm.data.documents import Reading
from multimdm.data.sources import open_source
def ask(name):
    return list(open_source(f"hf:{name}", Reading()).documents(lambda _: None))
"""


@pytest.mark.parametrize(("how", "package"), [(TOKENIZER, "transformers"), (DATA_SET, "datasets")])
def test_it_is_missed_before_its_package_is_imported(how, package, tmp_path):
    """The import takes longer than the Hub's silence."""
    program = (
        f"import sys\n{how}\n"
        "try:\n    ask('org/name')\n"
        f"except ValueError as error:\n    print('Hub cannot be reached' in str(error), {package!r} in sys.modules)"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    environment = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HUB_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True", "False"], done.stderr


@pytest.mark.parametrize("ask", [tokenizer, data_set, judge])
def test_nobody_answers(ask, monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        point_client_at(monkeypatch, tmp_path / "cache", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr("multimdm.data.hub_silence.PATIENCE", 0.3)
        start = time.monotonic()
        with pytest.raises(ValueError, match=r"\(the Hub .*\)"):
            ask()
        assert time.monotonic() - start < 3
