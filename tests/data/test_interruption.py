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
