"""Programs of strangers: what they may do, and what stops them."""

from pathlib import Path

import pytest

from multimdm.evaluation.sandbox import Limits, run_program

QUICK = Limits(seconds=2.0, megabytes=256)


@pytest.mark.parametrize(
    "program",
    [
        "assert sorted([3, 1]) == [1, 3]",
        "import math, re, heapq, collections, itertools\nfrom typing import List\nassert math.isqrt(9) == 3",
        "open('mine.txt', 'w').write('a')\nassert open('mine.txt').read() == 'a'",
        "print('much' * 1000)",
    ],
)
def test_what_passes(program):
    assert run_program(program, QUICK).passed


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("assert 1 == 2", "AssertionError"),
        ("def f(:", "SyntaxError"),
        ("while True: pass", "not finished after 0.5 seconds"),
        ("x = 'a' * 10**10", "MemoryError"),
        ("import os; os._exit(0)", "it left before its end"),
        ("import sys; sys.exit(0)", "it left before its end"),
        ("import subprocess; subprocess.run(['ls'])", "closed to generated code"),
        ("import os; os.system('ls')", "closed to generated code"),
        ("import os; os.fork()", "closed to generated code"),
        ("import socket; socket.socket()", "closed to generated code"),
        ("open('big', 'w').write('a' * 10**7)", "File too large"),
    ],
)
def test_what_does_not(program, reason):
    limits = Limits(seconds=0.5, megabytes=256) if "while" in program else QUICK
    verdict = run_program(program, limits)
    assert not verdict.passed
    assert reason in verdict.reason


def test_files_of_others_are_out_of_reach(tmp_path: Path):
    precious, secret = tmp_path / "precious.txt", tmp_path / "secret.txt"
    precious.write_text("kept")
    secret.write_text("secret")
    for program in (
        f"open({str(precious)!r}, 'w').write('gone')",
        f"import os; os.remove({str(precious)!r})",
        f"import os; os.rename({str(precious)!r}, 'here')",
        f"import shutil; shutil.rmtree({str(tmp_path)!r})",
        f"import pathlib; pathlib.Path({str(precious)!r}).unlink()",
        f"import os; f = os.open({str(precious)!r}, os.O_WRONLY); os.write(f, b'gone')",
    ):
        assert not run_program(program, QUICK).passed
    assert precious.read_text() == "kept"


def test_nothing_of_the_environment_is_seen(monkeypatch):
    monkeypatch.setenv("TOKEN", "secret")
    assert run_program("import os; assert 'TOKEN' not in os.environ; assert not os.listdir('.')", QUICK).passed
