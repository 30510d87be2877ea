"""BPE is trained where a signal ends it, to the same bytes as anywhere else."""

import os
import signal
import subprocess
import sys
import time

import pytest

from multimdm.cli.main import main
from multimdm.data import bpe_training
from multimdm.data.bpe_training import bpe_definition
from support.runs import environment

LINES = [f"the cat sat on {i} mats\n naïve 日本 👩" for i in range(200)]


def test_a_process_of_its_own_comes_to_the_same_bytes(monkeypatch):
    here = bpe_definition(iter(LINES), 300)
    monkeypatch.setattr(bpe_training, "LITTLE", 500)
    monkeypatch.setattr(bpe_training, "_trained_here", lambda *_: pytest.fail("it was trained here"))
    assert bpe_definition(iter(LINES), 300) == here


def test_errors_come_from_where_they_arise(monkeypatch):
    monkeypatch.setattr(bpe_training, "LITTLE", 500)

    def damaged():
        yield from LINES
        raise ValueError("line 201 is damaged")

    with pytest.raises(ValueError, match="line 201 is damaged"):
        bpe_definition(damaged(), 300)
    with pytest.raises(ValueError, match="the tokenizer cannot be trained: can't convert negative"):
        bpe_definition(LINES, -1)

    started = []

    class Killed(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)
            self.kill()

    monkeypatch.setattr(bpe_training.subprocess, "Popen", Killed)
    with pytest.raises(ChildProcessError, match="was ended by another, perhaps for want of memory"):
        bpe_definition(LINES * 100, 300)
    assert started[0].returncode == -signal.SIGKILL


def test_a_process_that_fails_by_itself_was_not_killed(monkeypatch):
    monkeypatch.setattr(bpe_training, "LITTLE", 500)
    monkeypatch.setattr(bpe_training.sys, "executable", "false")
    with pytest.raises(ChildProcessError, match="failed with exit code 1; it said why above"):
        bpe_definition(LINES * 100, 300)


SCRIPT = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts the tests in the background ignores it
from multimdm.cli import main
from multimdm.data import bpe_training
bpe_training.LITTLE = 500
class Told(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        print(self.pid, flush=True)
bpe_training.subprocess.Popen = Told
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_at_once(sign, code, tmp_path, monkeypatch):
    """The trainer is made to last for ever, by SIGSTOP: only the process that waits for it can hear the signal."""
    (tmp_path / "corpus.txt").write_text("\n".join(LINES), encoding="utf-8")
    arguments = ["prepare", "corpus.txt", "--tokenizer", "bpe:300", "--length", "32"]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments, "--out", "out"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        trainer = int(process.stdout.readline())
        os.kill(trainer, signal.SIGSTOP)
        time.sleep(0.3)  # by now all is sent, and it waits
        process.send_signal(sign)
        _, said = process.communicate(timeout=60)  # a fraction of a second where nothing else runs
        assert process.returncode == code
    assert b"multimdm prepare: stopped; what was finished is kept, and the same command goes on" in said
    with pytest.raises(ProcessLookupError):
        os.kill(trainer, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "--out", "out"]) == 0
    assert main([*arguments, "--out", "uninterrupted"]) == 0
    for name in ("tokens.bin", "tokenizer.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "uninterrupted" / name).read_bytes()


def test_the_trainer_ends_with_who_started_it():
    """As after `kill -9`: nobody is left to end it."""
    command = [sys.executable, "-m", "multimdm.data.bpe_training", "300"]
    middle = f"import subprocess, sys; p = subprocess.Popen({command!r}, stdin=0, start_new_session=True); print(p.pid)"
    reading, writing = os.pipe()  # its input stays open
    try:
        told = subprocess.run(
            [sys.executable, "-c", middle + "; import time; time.sleep(1)"],
            stdin=reading,
            env=environment(),
            capture_output=True,
        )
        trainer = int(told.stdout.split()[0])
        for _ in range(100):
            try:
                os.kill(trainer, 0)
            except ProcessLookupError:
                break
            time.sleep(0.1)
        else:
            pytest.fail("it lives on")
    finally:
        os.close(reading)
        os.close(writing)
