"""Small training runs, in this process and in others."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml

from multimdm.training.building import pretrain_job
from multimdm.training.job import Job
from multimdm.training.recipes import parse_recipe
from multimdm.training.records import read_records
from multimdm.training.schema import PretrainRecipe

TINY: dict[str, Any] = {
    "system": "multimdm",
    "data": {"kind": "tales"},
    "network": {"size": "tiny", "hidden_dim": 16, "num_blocks": 2, "num_heads": 2, "cond_dim": 8, "dropout": 0.1},
    "process": {"num_masks": 5},
    "identification": {"start": 0.2, "end": 0.8},
    "train": {"steps": 12, "batch_size": 8, "learning_rate": 0.01, "warmup": 3, "decay": "cosine", "ema": 0.9},
    "log": {
        "every": 1,
        "validate_every": 6,
        "validation_sequences": 8,
        "sample_every": 0,
        "checkpoint_every": 3,
        "keep": 2,
        "tensorboard": False,
    },
}


def tiny(**sections: Any) -> dict[str, Any]:
    """The tiny recipe with some keys of some sections changed."""
    data = json.loads(json.dumps(TINY))
    for name, value in sections.items():
        data[name] = {**data.get(name, {}), **value} if isinstance(value, dict) else value
    return data


def tiny_job(name: str = "tiny", **sections: Any) -> Job:
    """A job of the tiny recipe."""
    return pretrain_job(parse_recipe(tiny(**sections), PretrainRecipe, "test"), name)


def tiny_distillation(init: Path, **sections: Any) -> dict[str, Any]:
    """A tiny recipe to distil the checkpoint in `init`: consistency in three rounds, unless sdtt is given."""
    train = {"steps": 12, "batch_size": 8, "learning_rate": 0.01, "warmup": 0, "decay": "constant", "ema": 0.9}
    data = {"init": str(init), "train": train, "log": {**TINY["log"]}}
    if "sdtt" not in sections:
        data["consistency"] = {"delta": 0.25, "rounds": 3, "mu": 0.5, "visible_target": "cross_entropy"}
    for name, value in sections.items():
        data[name] = {**data.get(name, {}), **value} if isinstance(value, dict) else value
    return data


def write_recipe(path: Path, **sections: Any) -> Path:
    """The tiny recipe as a file."""
    path.write_text(yaml.safe_dump(tiny(**sections)), encoding="utf-8")
    return path


def pretraining(folder: Path, **sections: Any) -> list[str]:
    """The arguments of `multimdm` for a tiny run in a folder; it is kept in `folder / "run"`."""
    return ["pretrain", str(write_recipe(folder / "tiny.yaml", **sections)), "--out", str(folder / "run")]


def asking(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The function, which sends its own process a signal when it is called."""

    def wrapped(*arguments: Any, **named: Any) -> Any:
        os.kill(os.getpid(), number)
        return function(*arguments, **named)

    return wrapped


def environment() -> dict[str, str]:
    """Of a child process: one thread, so that sums are the same in all of them."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def start(arguments: list[str], ranks: int = 1, restarts: int = 0) -> subprocess.Popen:
    """Start `multimdm` with these arguments, under torchrun if there are several ranks."""
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command += [f"--max-restarts={restarts}"]
    command += ["-m", "multimdm", *arguments]
    return subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def launched(program: Path, *arguments: str) -> subprocess.Popen:
    """Start a program of ours on two ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
    return subprocess.Popen(
        [*command, *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def start_node(arguments: list[str], place: str) -> subprocess.Popen:
    """Start one of two nodes with one rank each, which meet at this place; as on a cluster (docs/scaling.md)."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--max-restarts=1"]
    command += ["--rdzv-backend=c10d", f"--rdzv-endpoint={place}", "--rdzv-id=test", "-m", "multimdm", *arguments]
    return subprocess.Popen(
        command,
        env={**environment(), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen, seconds: float = 240) -> str:
    """Wait for the end; what was printed. A failure shows it, and what hangs is ended with all of its ranks."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"it hangs: {output}") from None
    assert process.returncode == 0, output
    return output


def metrics(out: Path, kind: str = "train") -> list[dict[str, Any]]:
    """The records of a run without those that tell of the clock."""
    left_out = ("kind", "tokens_per_second", "seconds")
    return [{k: v for k, v in record.items() if k not in left_out} for record in read_records(out, kind)]


def weights(out: Path) -> bytes:
    """The final model's tensors, as they are on disk."""
    return (out / "model" / "model.safetensors").read_bytes()


def tiny_starts(folder: Path) -> dict[str, Path]:
    """A model of each system with weights that are not trained, but not constant either; system -> its directory."""
    found = {}
    for system in ("mdlm", "multimdm", "duo", "ar"):
        model = tiny_job(system=system, network={"dropout": 0.0}).model
        torch.manual_seed(0)
        for parameter in model.network.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        model.save(folder / system)
        found[system] = folder / system
    return found
