"""`multimdm serve` as a program: options, a request, and an end that finishes what is running."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from multimdm.cli.main import main
from support.tiny_models import causal_tales_model, tales_model, word_model, word_tokenizer


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "model"
    tales_model().save(path)
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x", "--port", "70000"], "--port must be from 0 to 65535"),
        (["x", "--batch", "0"], "--batch must be above 0; got 0"),
        (["x", "--max-body", "-1"], "--max-body must be above 0; got -1"),
        (["x", "--grace", "-1"], "--grace must be at least 0"),
        (["no/such/place/model"], "is not a checkpoint directory"),
        (["x", "--api-key-file", "/nonexistent"], "/nonexistent"),
    ],
)
def test_bad_options(arguments, message, capsys):
    assert main(["serve", *arguments, *([] if "--port" in arguments else ["--port", "0"])]) == 2
    assert message in capsys.readouterr().err


def test_a_port_that_is_taken(checkpoint, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert main(["serve", str(checkpoint), "--port", port]) == 2
    said = capsys.readouterr().err
    assert f"--port {port}: Address already in use" in said
    assert "--port 0 for a free one" in said


def test_what_cannot_be_served(tmp_path, capsys):
    causal_tales_model().save(tmp_path / "causal")
    silent = tales_model()
    silent.tokenizer = None
    silent.save(tmp_path / "silent")
    word_model(word_tokenizer(["a"])).save(tmp_path / "words")
    for arguments, message in (
        ([tmp_path / "causal"], "causal is autoregressive; serve a diffusion model"),
        ([tmp_path / "silent"], "silent has no tokenizer"),
        ([tmp_path / "words", "--bos"], "--bos must be left out"),
    ):
        assert main(["serve", *map(str, arguments), "--port", "0"]) == 2
        assert message in capsys.readouterr().err


def test_an_empty_key_is_refused(tmp_path, capsys):
    (tmp_path / "key").write_text("\n")
    assert main(["serve", "x", "--api-key-file", str(tmp_path / "key")]) == 2
    assert "is empty" in capsys.readouterr().err


def post(port: int, body: dict, key: str) -> dict:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.loads(reply.read())


def get(port: int, path: str, key: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.read().decode()


def test_serve_answer_and_stop(checkpoint, tmp_path):
    (tmp_path / "key").write_text("sesame\n")
    command = [sys.executable, "-m", "multimdm", "serve", str(checkpoint), str(checkpoint), "--port", "0"]
    with subprocess.Popen(
        [*command, "--api-key-file", str(tmp_path / "key"), "--device", "cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            said = process.stdout.readline()  # pyright: ignore[reportOptionalMemberAccess]
            found = re.search(r"the playground is at http://127.0.0.1:(\d+)/", said)
            assert found is not None
            port = int(found[1])
            name = checkpoint.parent.name
            assert f"serving {name}, {name}-2" in said
            reply, deadline = None, time.monotonic() + 60
            while reply is None and time.monotonic() < deadline:
                try:
                    reply = post(port, {"prompt": "Lily", "steps": 2, "model": f"{name}-2"}, "sesame")
                except OSError:
                    time.sleep(0.1)
            assert reply is not None
            assert reply["choices"][0]["finish_reason"] in ("stop", "length")
            long: list[dict] = []
            asked = {"prompt": "Lily", "steps": 200, "n": 8, "sampler": "confidence"}
            thread = threading.Thread(target=lambda: long.append(post(port, asked, "sesame")))
            thread.start()
            while "multimdm_running_sequences 8" not in get(port, "/metrics", "sesame"):
                assert thread.is_alive()
            process.send_signal(signal.SIGTERM)
            thread.join(60)
            assert len(long[0]["choices"]) == 8
            assert process.wait(30) in (0, -signal.SIGTERM)
        finally:
            process.kill()
