"""Whole runs on the pretend GPUs, with validation, samples, averages and checkpoints: the losses of the CPU."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from multimdm.training.building import JOBS
from multimdm.training.job import Job
from multimdm.training.loop import train
from multimdm.training.recipes import parse_recipe
from multimdm.training.schema import RECIPES
from pretend_gpu import pretend_gpu
from pretend_gpu.compiled import Schedule
from support.runs import metrics, tiny, tiny_distillation, tiny_starts

TRAIN = {"steps": 6, "micro_batch": 4, "precision": "float32"}
LOG = {"validate_every": 3, "validation_sequences": 4, "sample_every": 6, "checkpoint_every": 4}


@pytest.fixture(scope="module")
def starts(tmp_path_factory) -> dict[str, Path]:
    return tiny_starts(tmp_path_factory.mktemp("starts"))


def recipe(name: str, starts: dict[str, Path]) -> tuple[str, dict[str, Any]]:
    """The command, and what it is told."""
    how = {"train": TRAIN, "log": LOG}
    if name == "couple":
        shared = {key: value for key, value in tiny(**how).items() if key in ("data", "train", "log")}
        return "couple", {**shared, "init": str(starts["multimdm"]), "quantile": {"teacher": "tales"}}
    if name == "consistency":
        return "distill", tiny_distillation(starts["multimdm"], **how)
    if name == "gaussian":
        return "distill", tiny_distillation(starts["duo"], consistency={"coupling": "gaussian"}, **how)
    if name == "sdtt":
        return "distill", tiny_distillation(starts["mdlm"], sdtt={"delta": 0.125, "rounds": 3}, **how)
    return "pretrain", tiny(system=name, **how)


NAMES = ("mdlm", "multimdm", "duo", "candi", "ar", "couple", "consistency", "gaussian", "sdtt")


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_those_of_the_cpu(name, starts, tmp_path):
    command, said = recipe(name, starts)

    def job() -> Job:
        return JOBS[command](parse_recipe(said, RECIPES[command], name), name)

    train(job(), tmp_path / "cpu", quiet=True)
    for device in ("cuda", "mps"):
        with ExitStack() as stack:
            for where, value in {
                "pretend_gpu.device.schedule_of": lambda function, args: Schedule(1, 0),  # nothing is counted
                "multimdm.training.engine.find_device": lambda _, device=device: torch.device(device, 0),
                "torch.cuda.max_memory_allocated": lambda *_: 2**30,
                "torch.cuda.get_device_name": lambda *_: "NVIDIA H100 80GB HBM3",
            }.items():
                stack.enter_context(mock.patch(where, value))
            counts = stack.enter_context(pretend_gpu(device))
            train(job(), tmp_path / device, quiet=True)
            assert counts.launches
            assert counts.doubles == 0 or device == "cuda"
        for kind in ("train", "valid"):
            pairs = zip(metrics(tmp_path / device, kind), metrics(tmp_path / "cpu", kind), strict=True)
            assert all(_same(found, expected) for found, expected in pairs)
        for cost in metrics(tmp_path / device, "cost"):
            assert ("peak_memory" in cost and 0 < cost["utilisation"] < 1) == (device == "cuda")
        saved = [path.name for path in sorted((tmp_path / device / "checkpoints").iterdir())]
        assert saved == ["step-00000004", "step-00000006"]


def _same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether both have the same figures, up to rounding; speed aside."""
    names = expected.keys() - {"tokens_per_second"}
    return names <= found.keys() and all(
        found[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-6) for name in names
    )
