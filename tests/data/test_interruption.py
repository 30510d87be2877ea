import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from multimdm.cli.main import main
from multimdm.data import encoding, preparing
from multimdm.data.options import PrepareOptions
from multimdm.data.prepared import PreparedData
from multimdm.data.preparing import prepare
from support.runs import environment


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"the cat sat on {i} mats\n" for i in range(200)), encoding="utf-8")
    return path


def options(source) -> PrepareOptions:
    return PrepareOptions(sources=(str(source),), tokenizer="chars", length=32)


def stopping(error, after=100):
    """Raise it behind so many documents."""

    def stop(state):
        if state.documents > after and state.stage == "encoding":
            raise error("stop")

    return stop


def content(directory) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_interrupted_it_leaves_nothing_half_written(error, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "BATCH_CHARACTERS", 500)
    with pytest.raises(error, match="stop"):
        prepare(options(corpus), tmp_path / "out", progress=stopping(error))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.unfinished", "corpus.txt"]

    prepare(options(corpus), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "out"]
    old = (tmp_path / "out" / "tokens.bin").read_bytes()
    with pytest.raises(error, match="stop"):
        prepare(replace(options(corpus), length=16), tmp_path / "out", force=True, progress=stopping(error))
    assert (tmp_path / "out" / "tokens.bin").read_bytes() == old
    assert PreparedData.open(tmp_path / "out").manifest.counts.documents == 200


def test_stopped_before_anything_is_finished_it_leaves_nothing(corpus, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(preparing, "train_chars", stop)
    with pytest.raises(KeyboardInterrupt):
        prepare(options(corpus), tmp_path / "out")
    assert list(tmp_path.iterdir()) == [corpus]


SCRIPT = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts the tests in the background ignores it
from multimdm.cli import main, prepare
from multimdm.data import encoding
encoding.BATCH_CHARACTERS = 500
def wait(self, state):
    if state.documents > 20:
        print("working", flush=True)
        time.sleep(0.3)
prepare.Bar.show = wait
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_command_that_is_stopped_goes_on(sign, code, workers, corpus, tmp_path, monkeypatch, capsys):
    """A real process, stopped in the middle; the same command then comes to what an uninterrupted run leaves."""
    arguments = ["prepare", "corpus.txt", "--tokenizer", "bpe:300", "--length", "32", "--valid-last", "30"]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments, "--out", "out", "--workers", workers],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"working\n"
        process.send_signal(sign)
        said = process.stderr.read().decode()  # comes to its end once all workers have left, too
        assert process.wait(timeout=20) == code
    assert not (tmp_path / "out").exists()
    if sign != signal.SIGKILL:
        assert "stopping: what is being encoded is finished and kept first" in said
        assert re.search(r"^kept 0\.\d of 0\.\d MB of text, encoded; the same command goes on$", said, re.MULTILINE)
        assert [path.name for path in tmp_path.glob(".out.*")] == [".out.unfinished"]

    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(preparing, "train_bpe", lambda *_: pytest.fail("the tokenizer was trained twice"))
        assert main([*arguments, "--out", "out"]) == 0
    kept = re.search(r"going on with (\d+) documents that were encoded", capsys.readouterr().out)
    assert kept is not None
    assert 20 < int(kept[1]) < 200
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "out"]
    assert main([*arguments, "--out", "uninterrupted"]) == 0
    assert content(tmp_path / "out") == content(tmp_path / "uninterrupted")


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
