"""Programs of strangers: what they may do, what stops them, and what they try in vain."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from multimdm.evaluation import sandbox, sandbox_child
from multimdm.evaluation.sandbox import Limits, run_program

QUICK = Limits(seconds=4.0, megabytes=256)
SHORT = Limits(seconds=0.5, megabytes=256)


@pytest.mark.parametrize(
    "program",
    [
        "assert sorted([3, 1]) == [1, 3]",
        "import math, re, heapq, collections, itertools\nfrom typing import List\nassert math.isqrt(9) == 3",
        "import dataclasses, hashlib, random, datetime, fractions\nassert hashlib.md5(b'').hexdigest()[:4] == 'd41d'",
        "open('mine.txt', 'w').write('a')\nassert open('mine.txt').read() == 'a'",
        "from pathlib import Path\nPath('a').write_text('b')\nPath('a').rename('c')\nPath('c').unlink()",
        "import os, tempfile\nos.mkdir('d')\nassert os.listdir() == ['d']\ntempfile.TemporaryFile().write(b'a')",
        "print('much' * 1000)",
    ],
)
def test_what_passes(program):
    verdict = run_program(program, QUICK)
    assert verdict.passed, verdict.reason


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("assert 1 == 2", "AssertionError"),
        ("def f(:", "SyntaxError"),
        ("a = '\0'", "null bytes"),
        ("import os; os._exit(0)", "it left before its end"),
        ("import sys; sys.exit(0)", "it left before its end"),
    ],
)
def test_what_does_not(program, reason):
    verdict = run_program(program, QUICK)
    assert not verdict.passed
    assert reason in verdict.reason


@pytest.mark.parametrize(
    "program",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "import sys\nwhile True:\n    try: sys.exit(1)\n    except SystemExit: pass",
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass",
    ],
)
def test_endless_programs_are_ended(program):
    started = time.monotonic()
    assert run_program(program, SHORT).reason == "not finished after 0.5 seconds"
    assert time.monotonic() - started < 20  # of a busy machine


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("x = 'a' * 10**10", "MemoryError"),
        ("x = []\nwhile True: x.append(bytearray(10**6))", "MemoryError"),
        ("open('big', 'w').write('a' * 10**7)", "File too large"),
        ("import os; f = os.open('big', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 10**10)", "closed"),
        ("import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1)); x = 'a' * 10**9", "closed"),
        ("files = [open(str(n), 'w') for n in range(100)]", "Too many open files"),
    ],
)
def test_memory_and_disk_are_limited(program, reason):
    assert reason in run_program(program, QUICK).reason


def test_complaints_do_not_fill_our_memory():
    """They are cut off, whatever is left of the program's time."""
    program = "import sys\nwhile True: sys.stderr.write('a' * 10**5 + '\\n')"
    assert len(run_program(program, SHORT).reason) <= 2**20


@pytest.mark.parametrize(
    "program",
    [
        "import subprocess; subprocess.run(['ls'])",
        "import os; os.system('ls')",
        "import os\nwhile True: os.fork()",
        "import os; os.forkpty()",
        "import os; os.posix_spawn('/bin/ls', ['ls'], {})",
        "import os; os.execv('/bin/ls', ['ls'])",
        "import os; os.popen('ls').read()",
        "import pty; pty.spawn('/bin/sh')",
        "import multiprocessing as m; m.get_context('fork').Process(target=print).start()",
        "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
        "import os, signal; os.killpg(os.getpgid(os.getppid()), signal.SIGKILL)",
        "import socket; socket.socket()",
        "import socket; socket.create_connection(('127.0.0.1', 80))",
        "import socket; socket.getaddrinfo('example.org', 80)",
        "import _socket; _socket.socket()",
        "import ctypes; ctypes.CDLL(None)",
        "import ctypes; ctypes.pythonapi.getpid()",
        "import gc; gc.get_objects()",
    ],
)
def test_processes_and_the_network_are_closed(program):
    verdict = run_program(program, QUICK)
    assert not verdict.passed
    assert "closed to generated code" in verdict.reason


def test_there_is_no_handle_of_our_process():
    program = "import os, signal; signal.pidfd_send_signal(os.pidfd_open(os.getppid()), signal.SIGKILL)"
    assert "pidfd_open" in run_program(program, QUICK).reason


def test_a_server_nearby_hears_nothing():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0.2)
        address = server.getsockname()
        program = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{address[1]}/')"
        assert not run_program(program, QUICK).passed
        with pytest.raises(TimeoutError):
            server.accept()


def test_files_of_others_are_out_of_reach(tmp_path: Path):
    precious = tmp_path / "precious.txt"
    precious.write_text("kept")
    name = str(precious)
    for program in (
        f"open({name!r}, 'w').write('gone')",
        f"open({name!r}, 'r+').truncate()",
        f"open({name!r})",
        f"import os; os.remove({name!r})",
        f"import os; os.rename({name!r}, 'here')",
        f"import os; os.truncate({name!r}, 0)",
        f"import os; os.open({name!r}, os.O_RDONLY | os.O_TRUNC)",
        f"import os; f = os.open({name!r}, os.O_WRONLY); os.write(f, b'gone')",
        f"import os; os.symlink({name!r}, 'here'); open('here', 'w')",
        f"import os; os.chdir({str(tmp_path)!r}); open('precious.txt', 'w')",
        f"import os; os.mkdir({str(tmp_path / 'new')!r})",
        f"import os; os.listdir({str(tmp_path)!r})",
        f"import shutil; shutil.rmtree({str(tmp_path)!r})",
        f"import pathlib; pathlib.Path({name!r}).unlink()",
        f"import sqlite3; sqlite3.connect({str(tmp_path / 'new.db')!r}).execute('create table a (b)')",
        "open('../outside.txt', 'w')",
        f"open({sandbox_child.__file__!r}, 'a')",
    ):
        verdict = run_program(program, QUICK)
        assert not verdict.passed, program
        assert "NotFound" not in verdict.reason, program
    assert precious.read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_nothing_of_the_environment_is_seen(monkeypatch):
    monkeypatch.setenv("TOKEN", "secret")
    assert run_program("import os; assert 'TOKEN' not in os.environ; assert not os.listdir('.')", QUICK).passed
    for place in ("f'/proc/{os.getppid()}/environ'", "'/proc/self/environ'", "'/etc/passwd'", f"{os.getcwd()!r}"):
        verdict = run_program(f"import os; open({place})", QUICK)
        assert "may not read" in verdict.reason, place


def test_what_a_program_leaves_running_is_ended(tmp_path, monkeypatch):
    """Were it to start a process in spite of all, it would not outlive the verdict."""
    beats = tmp_path / "beats"
    child = tmp_path / "child.py"
    child.write_text(
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        f"    while True:\n        open({str(beats)!r}, 'a').write('.')\n        time.sleep(0.02)\n"
        f"while not os.path.exists({str(beats)!r}): time.sleep(0.01)\n"
        "os.write(int(sys.argv[2]), b'done')\n"
    )
    monkeypatch.setattr(sandbox, "_CHILD", child)
    assert run_program("", QUICK).passed
    before = beats.stat().st_size
    time.sleep(0.3)
    assert beats.stat().st_size == before


_KERNEL_ALONE = """
import errno, os, signal, socket, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
import sandbox_child
place, outside, port = sys.argv[2], sys.argv[3], int(sys.argv[4])
if sandbox_child.limit_by_kernel(place, [sys.base_prefix, "/usr", "/lib", "/lib64"]) < 6:
    print("too old")
    raise SystemExit
tries = {
    "write": lambda: open(outside, "w"),
    "truncate": lambda: os.truncate(outside, 0),
    "read": lambda: open(outside),
    "environment": lambda: open(f"/proc/{os.getppid()}/environ"),
    "remove": lambda: os.remove(outside),
    "list": lambda: os.listdir(os.path.dirname(outside)),
    "connect": lambda: socket.create_connection(("127.0.0.1", port)),
    "kill": lambda: os.kill(os.getppid(), 0),
    "execute": lambda: os.execv(sys.executable, [sys.executable, "-c", ""]),
}
for name, attempt in tries.items():
    try:
        attempt()
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            continue
        name += f" ({error})"
    print(name)
open(os.path.join(place, "mine"), "w").write("a")
"""


def test_the_kernel_alone_would_do(tmp_path):
    """Without the hook in the interpreter, which a clever program could get around."""
    place, outside = tmp_path / "place", tmp_path / "outside"
    place.mkdir()
    outside.write_text("kept")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        arguments = [sandbox_child.__file__, str(place), str(outside), str(server.getsockname()[1])]
        command = [sys.executable, "-I", "-S", "-c", _KERNEL_ALONE, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    if done.stdout == "too old\n":
        pytest.skip("this kernel has no Landlock, or an old one")
    assert done.stdout == ""
    assert outside.read_text() == "kept"
    assert (place / "mine").is_file()
