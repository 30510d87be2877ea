"""The commands that torture.py torments, small enough for hundreds of runs, and how they are run and killed."""

import importlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from multimdm._files import write_text
from multimdm.data import encoding
from torture_leavings import half_written, named

PATIENCE = 300
"""Seconds after which a command counts as hanging."""

RECIPE: dict[str, Any] = {
    "system": "multimdm",
    "data": {"kind": "tales"},
    "network": {"size": "tiny", "hidden_dim": 16, "num_blocks": 2, "num_heads": 2, "cond_dim": 8, "dropout": 0.1},
    "process": {"num_masks": 5},
    "identification": {"start": 0.2, "end": 0.8},
    "train": {"steps": 24, "batch_size": 8, "learning_rate": 0.01, "warmup": 3, "decay": "cosine", "ema": 0.9},
    "log": {
        **{"every": 1, "validate_every": 8, "validation_sequences": 8, "sample_every": 0},
        **{"checkpoint_every": 2, "keep": 2, "tensorboard": False},
    },
}
DISTILLATION: dict[str, Any] = {
    "train": {**RECIPE["train"], "steps": 18, "decay": "constant", "warmup": 0},
    "log": RECIPE["log"],
    "consistency": {"delta": 0.25, "rounds": 3, "mu": 0.5, "visible_target": "cross_entropy"},
}


@dataclass(frozen=True)
class Work:
    """A command, and what it leaves in a directory of its own."""

    name: str
    arguments: Callable[[Path], list[str]]
    """From the directory that it writes to."""
    ranks: int = 1
    begins_with_a_model: bool = False

    def begun(self, out: Path) -> bool:
        """Whether something is there that need not be done again."""
        encoded = out.with_name(f".{out.name}.unfinished") / "source-000"
        folders = {out / "checkpoints": "step-", out / "points": "", encoded: "0", out: "train"}
        return any(named(folder, start) for folder, start in folders.items())

    def writing(self, out: Path) -> bool:
        """Whether something is half-written."""
        folders = (out, out / "checkpoints", out / "points")
        return any(".partial-" in name for folder in folders for name in named(folder, ".")) or bool(half_written(out))


def works(home: Path) -> dict[str, Work]:
    """All of them; `home` holds what they read."""
    train = lambda out: ["pretrain", str(home / "train.yaml"), "--out", str(out)]  # noqa: E731
    distill = lambda out: ["distill", str(home / "distill.yaml"), "--out", str(out)]  # noqa: E731
    text = ["prepare", str(home / "text.txt"), "--tokenizer", "bpe:400", "--length", "32", "--valid-fraction", "0.1"]
    measured = ["evaluate", str(home / "model"), "--steps", "1", "2", "3", "--num", "4", "--judge", "none", "--nelbo"]
    measured += ["--sequences", "8", "--temperatures", "0.5", "1.0", "--device", "cpu"]
    found = [
        Work("train", train),
        Work("two ranks", train, ranks=2),
        Work("distill", distill, begins_with_a_model=True),
        Work("prepare", lambda out: [*text, "--out", str(out)]),
        Work("measure", lambda out: [*measured, "--out", str(out)], begins_with_a_model=True),
    ]
    return {work.name: work for work in found}


LOADED = (
    *("multimdm.cli.evaluate", "multimdm.cli.prepare", "multimdm.cli.training"),
    *("multimdm.data.preparing", "multimdm.evaluation.plan", "multimdm.report.terminal", "multimdm.training.building"),
    *("tokenizers", "torch._dynamo"),
)
"""What commands import when they need it: here before the forks, so that none has to wait for it."""
MODEL = """
import json, sys, torch
from multimdm.training.building import pretrain_job
from multimdm.training.recipes import parse_recipe
from multimdm.training.schema import PretrainRecipe

torch.manual_seed(0)
model = pretrain_job(parse_recipe(json.loads(sys.argv[1]), PretrainRecipe, "torture"), "start").model
for weights in model.network.parameters():
    torch.nn.init.normal_(weights, std=0.2)
model.save(sys.argv[2])
"""
"""Run in a process of its own: whoever forks must not have computed anything."""


def furnish(home: Path) -> None:
    """Recipes and a text."""
    home.mkdir(parents=True, exist_ok=True)
    write_text(home / "train.yaml", yaml.safe_dump(RECIPE))
    write_text(home / "distill.yaml", yaml.safe_dump({"init": str(home / "model"), **DISTILLATION}))
    rng, words = random.Random(0), ["the", "a", "dog", "cat", "tree", "runs", "sleeps", "over", "under", "green", "and"]
    lines = (" ".join(rng.choice(words) for _ in range(rng.randint(3, 20))) for _ in range(6000))
    if not (home / "text.txt").exists():  # its time is a part of what `prepare` writes down
        write_text(home / "text.txt", "\n".join(lines) + "\n")
    for name in LOADED:
        importlib.import_module(name)
    encoding.BATCH_CHARACTERS = 1 << 14  # some twenty pieces of the text, of which a killed command keeps a few


def alone() -> dict[str, str]:
    """The environment of a process: one thread, so that sums are the same in all of them."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


class Running:
    """A command under way; what it says goes to a file."""

    def __init__(self, work: Work, out: Path, said: Path, limit: int | None = None, plain: bool = False) -> None:
        self.said, self._code = said, None
        arguments = work.arguments(out)
        if work.ranks > 1 or plain:
            launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={work.ranks}"]
            command = [sys.executable, *(launcher if work.ranks > 1 else []), "-m", "multimdm", *arguments]
            with said.open("wb") as file:
                child = subprocess.Popen(command, env=alone(), stdout=file, stderr=file, start_new_session=True)
            self.pid = child.pid
            child.returncode = 0  # this object waits for it, and Popen must not
        else:
            self.pid = os.fork()
            if self.pid == 0:
                _become(arguments, said, limit)

    def poll(self) -> int | None:
        """How it ended; None if it has not."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self) -> int:
        """How it ended; what hangs is killed, and is an error."""
        end = time.monotonic() + PATIENCE
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"it hangs: {self.text[-300:]!r}")
            time.sleep(0.005)
        return code

    def kill(self, only: int | None = None) -> None:
        """SIGKILL, to all of its processes or to one of them."""
        for pid in [*descendants(self.pid), self.pid] if only is None else [only]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    @property
    def text(self) -> str:
        """What it has said so far."""
        return self.said.read_text(encoding="utf-8", errors="replace") if self.said.exists() else ""


def _become(arguments: list[str], said: Path, limit: int | None) -> None:
    """In the fork: run the command and end, whatever happens."""
    code = 70
    try:
        os.setsid()
        handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        from multimdm.cli.main import main as multimdm

        code = multimdm(arguments)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def descendants(pid: int) -> list[int]:
    """Children and theirs."""
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return [found for child in children for found in (*descendants(child), child)]
