"""Two ranks give the losses of one process with the same global batch; a rank that dies is replaced. Real processes."""

import os
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from multimdm import load
from multimdm.training import engine
from support.runs import finish, launched, metrics, pretraining, start, start_node

# Dropout differs between ranks by necessity; everything else is a function of the step and the sequence.
SECTIONS = {"network": {"dropout": 0.0}, "log": {"sample_every": 6, "samples": 2, "sample_steps": 2}}


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    finish(start(pretraining(folder, **SECTIONS)))
    return folder / "run"


def _same(out: Path, reference: Path, tolerance: float = 2e-4) -> None:
    for kind in ("train", "valid"):
        ours, theirs = metrics(out, kind), metrics(reference, kind)
        assert len(ours) == len(theirs) > 0
        for one, other in zip(ours, theirs, strict=True):
            assert one == pytest.approx(other, rel=tolerance), one
    assert metrics(out, "sample") == metrics(reference, "sample")
    expected = load(reference / "model").network.state_dict()
    for name, tensor in load(out / "model").network.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-3, atol=1e-3, msg=name)


@pytest.mark.parametrize(
    ("strategy", "options"),
    [("ddp", []), ("fsdp", []), ("ddp", ["--train.micro-batch", "2"]), ("fsdp", ["--train.micro-batch", "2"])],
)
def test_two_ranks_are_one_process(strategy, options, tmp_path, alone):
    arguments = [*pretraining(tmp_path, **SECTIONS), "--train.strategy", strategy, *options]
    finish(start(arguments, ranks=2))
    assert [record["ranks"] for record in metrics(tmp_path / "run", "start")] == [2]
    _same(tmp_path / "run", alone)


def test_the_number_of_ranks_may_change_on_resuming(tmp_path, alone):
    """Six steps on two sharded ranks, the rest on one process."""
    arguments = pretraining(tmp_path, **SECTIONS)
    process = start([*arguments, "--train.strategy", "fsdp", "--log.checkpoint-every", "6"], ranks=2)
    while not (tmp_path / "run" / "checkpoints" / "step-00000006").is_dir() and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    output = finish(start(arguments))
    assert "going on from" in output
    assert [record["ranks"] for record in metrics(tmp_path / "run", "start")] == [2, 1]
    _same(tmp_path / "run", alone)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_dead_rank_is_replaced_and_the_run_goes_on(strategy, tmp_path, alone):
    arguments = [*pretraining(tmp_path, **SECTIONS), "--log.checkpoint-every", "1"]
    arguments += ["--train.strategy", strategy]
    process = start(arguments, ranks=2, restarts=1)
    while not (tmp_path / "run" / "checkpoints" / "step-00000002").is_dir():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    os.kill(_rank(process.pid, 1), signal.SIGKILL)
    output = finish(process)
    assert "going on from" in output
    assert [record["ranks"] for record in metrics(tmp_path / "run", "start")] == [2, 2]
    _same(tmp_path / "run", alone)


def test_a_dead_rank_on_another_node(tmp_path, alone):
    """Two launchers stand for two nodes; both start their ranks again and all meet once more."""
    arguments = [*pretraining(tmp_path, **SECTIONS), "--log.checkpoint-every", "1"]
    with socket.socket() as free:
        free.bind(("localhost", 0))
        place = f"localhost:{free.getsockname()[1]}"
    nodes = [start_node(arguments, place) for _ in range(2)]
    while not (tmp_path / "run" / "checkpoints" / "step-00000002").is_dir():
        assert all(node.poll() is None for node in nodes), [node.communicate()[0] for node in nodes]
        time.sleep(0.01)
    os.kill(_rank(nodes[1].pid, None), signal.SIGKILL)
    for node in nodes:
        finish(node)
    assert [record["ranks"] for record in metrics(tmp_path / "run", "start")] == [2, 2]
    _same(tmp_path / "run", alone)


PARTING = """
import gc, sys, torch
from multimdm.models import DiT, DiTConfig
from multimdm.training import engine
from multimdm.training.settings import TrainSettings

config = DiTConfig(vocab_size=8, num_masks=1, hidden_dim=8, num_blocks=1, num_heads=2, cond_dim=4, max_length=4)
settings = TrainSettings(steps=1, strategy=sys.argv[1])
gc.freeze()  # of what is there before, nothing is garbage
for number in range(20):
    running = engine.Engine(DiT(config), settings)
    try:
        running(torch.zeros(2, 4, dtype=torch.long), torch.full((2,), 0.5)).sum().backward()
        running.sum(torch.ones(8))
        if number % 2:
            raise ValueError(number)
    except ValueError:
        pass
    finally:
        running.close()
    del running
assert engine._OUTLIVED == []
print("parted")
"""


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_ranks_part_without_waiting_for_each_other(strategy, tmp_path):
    """And meet again. Where DDP was let go of after its group, they hung at the eighth time."""
    program = tmp_path / "parting.py"
    program.write_text(PARTING, encoding="utf-8")
    output = finish(launched(program, strategy), seconds=90)
    assert output.count("parted") == 2


def test_a_group_outlives_a_network_that_someone_holds(monkeypatch):
    """Then it is the interpreter's end that lets go of it."""
    held = object.__new__(DistributedDataParallel)
    torch.nn.Module.__init__(held)
    parted = object.__new__(engine.Engine)
    parted.ranks, parted.network, parted._callable = 2, torch.nn.Identity(), held  # pyright: ignore[reportAttributeAccessIssue]
    asked: list[str] = []
    monkeypatch.setattr(engine, "_OUTLIVED", [])
    monkeypatch.setattr(engine.dist, "group", SimpleNamespace(WORLD="the group"))
    monkeypatch.setattr(engine, "part_ranks", lambda: asked.append("parted"))
    parted.close()
    assert engine._OUTLIVED == ["the group"]
    assert parted._callable is parted.network
    assert asked == ["parted"]


def test_nonsense_stops_all_ranks_with_one_message(tmp_path):
    """Every rank names the last good checkpoint, and the run ends."""
    process = start(
        [
            *pretraining(tmp_path, train={"learning_rate": 1e30, "clip": None, "warmup": 0}),
            "--log.checkpoint-every",
            "1",
        ],
        ranks=2,
    )
    output, _ = process.communicate(timeout=240)
    assert process.returncode != 0
    assert output.count("the loss is not a number in step") == 2
    assert "no checkpoint was made before" not in output


def _rank(launcher: int, rank: int | None) -> int:
    """The process of a rank (any, if none is named), among the children of torchrun."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for child in children:
        if rank is None or f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return int(child)
    raise AssertionError(f"no child of {launcher} has rank {rank}: {children}")
