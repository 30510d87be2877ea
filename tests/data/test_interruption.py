import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from multimdm.data import encoding
from multimdm.data.options import PrepareOptions
from multimdm.data.prepared import PreparedData
from multimdm.data.preparing import prepare


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"the cat sat on {i} mats\n" for i in range(200)), encoding="utf-8")
    return path


def options(source) -> PrepareOptions:
    return PrepareOptions(sources=(str(source),), tokenizer="chars", length=32)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_interrupted_it_leaves_nothing(error, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "BATCH_CHARACTERS", 500)
    before = sorted(tmp_path.iterdir())

    def stop(state):
        if state.documents > 100 and state.stage == "encoding":
            raise error("stop")

    with pytest.raises(error, match="stop"):
        prepare(options(corpus), tmp_path / "out", progress=stop)
    assert sorted(tmp_path.iterdir()) == before

    prepare(options(corpus), tmp_path / "out")
    old = (tmp_path / "out" / "tokens.bin").read_bytes()
    with pytest.raises(error, match="stop"):
        prepare(replace(options(corpus), length=16), tmp_path / "out", force=True, progress=stop)
    assert (tmp_path / "out" / "tokens.bin").read_bytes() == old
    assert PreparedData.open(tmp_path / "out").manifest.counts.documents == 200


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_killed_it_leaves_no_target(sign, tmp_path):
    """A real process, stopped in the middle; after SIGKILL, the next run clears away what was left."""
    (tmp_path / "a.txt").write_text("some text\n" * 100, encoding="utf-8")
    script = (
        # A shell that starts the tests in the background makes its children ignore Ctrl-C.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import time; from multimdm.data.options import PrepareOptions; from multimdm.data.preparing import prepare\n"
        "def wait(state): print('working', flush=True); time.sleep(60)\n"
        "prepare(PrepareOptions(sources=('a.txt',), tokenizer='chars'), 'out', progress=wait)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"working\n"
        process.send_signal(sign)
        process.wait(timeout=20)
    left = [path.name for path in tmp_path.iterdir() if path.name != "a.txt"]
    assert "out" not in left
    if sign is signal.SIGINT:
        assert left == []
    prepare(options(tmp_path / "a.txt"), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "out"]


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_command_says_what_became_of_its_work(sign, code, tmp_path):
    (tmp_path / "a.txt").write_text("some text\n" * 100, encoding="utf-8")
    script = (
        "import signal, sys, time; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from multimdm.cli import main, prepare\n"
        "def wait(self, state): print('working', flush=True); time.sleep(60)\n"
        "prepare.Bar.show = wait\n"
        "sys.exit(main.main(['prepare', 'a.txt', '--tokenizer', 'chars', '--out', 'out']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"working\n"
        process.send_signal(sign)
        said = process.stderr.read().decode()
        assert process.wait(timeout=20) == code
    assert said == "\nmultimdm prepare: stopped; nothing half-written is left, and the same command begins anew\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_force_replaces_nothing_of_others(corpus, tmp_path):
    prepare(options(corpus), tmp_path / "out")
    (tmp_path / "out" / "precious.txt").write_text("years of work", encoding="utf-8")
    for force in (True, False):
        with pytest.raises(ValueError, match=r"the directory holds something else .*precious.txt"):
            prepare(replace(options(corpus), length=16), tmp_path / "out", force=force)
    assert (tmp_path / "out" / "precious.txt").read_text(encoding="utf-8") == "years of work"


def test_a_link_to_a_directory_stays_a_link(corpus, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    prepare(options(corpus), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "manifest.json").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus.txt", "link", "real"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mix": ("1:a.txt", "1:b.txt"), "sources": (), "repeat": True, "valid_fraction": 0.1}, "--repeat would put"),
        (
            {"sources": ("a.txt",), "valid": ("a.txt",)},
            "--valid must be other text than what is trained on; a.txt is both",
        ),
        ({"sources": ("a.txt",), "length": 2_000_000_000}, "--length must be at most 1,048,576; got 2,000,000,000"),
    ],
)
def test_options_that_cannot_be_meant(change, message):
    with pytest.raises(ValueError, match=message):
        replace(options("a.txt"), **change).check()
