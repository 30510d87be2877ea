"""Two ranks that share a network: checkpoints in shards, compiled blocks in bfloat16. One start serves all tests."""

import json
from pathlib import Path

import pytest
import torch

from multimdm.pipeline.files import read_safetensors
from multimdm.training.checkpoints import Checkpoints, open_checkpoint
from multimdm.training.loop import train
from support.runs import finish, launched, metrics, tiny_job, weights

PROGRAM = """
import json, sys
from pathlib import Path
from unittest import mock
import torch
sys.path.insert(0, sys.argv[2])
from multimdm.training.loop import train
from support.runs import tiny_job

folder = Path(sys.argv[1])
compiled, plainly = [], torch.nn.Module.compile


def traced(self):
    compiled.append(self)
    plainly(self, backend="aot_eager")  # all of it but the making of kernels


def run(name, resume="auto", log=None, **how):
    settings = {"steps": 6, "warmup": 0, **how}
    job = tiny_job(network={"dropout": 0.0}, train=settings, log={"checkpoint_every": 2, "keep": 9, **(log or {})})
    train(job, folder / name, resume=resume, quiet=True)


with mock.patch("multimdm.training.loop.works_beside", lambda _: True):
    run("beside", strategy="fsdp")
run("plain", strategy="fsdp")
run("resumed", strategy="fsdp", resume=str(folder / "beside" / "checkpoints" / "step-00000002"))
torch.nn.Module.compile = traced
for strategy in ("ddp", "fsdp"):
    log = {"checkpoint_every": 6, "sample_every": 6, "samples": 2, "sample_steps": 2}
    run(strategy, strategy=strategy, precision="bfloat16", compile=True, log=log)
    assert len(compiled) == 2, compiled
    compiled.clear()
counters = torch._dynamo.utils.counters
frames = counters["frames"]
counted = {"ok": frames["ok"], "all": frames["total"], "breaks": counters["graph_break"]}
sys.stdout.write(json.dumps(counted) + "\\n")  # at once: ranks share a line's end else
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> tuple[Path, list[dict]]:
    """Their runs, and what the compiler of each rank counted."""
    folder = tmp_path_factory.mktemp("sharded")
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    output = finish(launched(program, str(folder), str(Path(__file__).parents[1])))
    return folder, [json.loads(line) for line in output.splitlines() if line.startswith('{"ok"')]


def test_every_rank_writes_its_own_part(ran):
    path = ran[0] / "plain" / "checkpoints" / "step-00000004"
    shards = sorted((path / "training").iterdir())
    assert [shard.suffix for shard in shards] == [".safetensors"] * 2, shards
    assert not (path / "training.safetensors").exists()
    kept = [sum(x.numel() for x in read_safetensors(shard).values()) for shard in shards]
    assert max(kept) < 0.7 * sum(kept)
    told = json.loads((path / "training.json").read_text(encoding="utf-8"))["files"]
    assert {str(shard.relative_to(path)) for shard in shards} < told.keys()


def test_writing_beside_training_changes_nothing(ran):
    for step in (2, 4, 6):
        name = f"step-{step:08d}"
        beside, plain = (open_checkpoint(ran[0] / run / "checkpoints" / name).tensors() for run in ("beside", "plain"))
        assert beside.keys() == plain.keys()
        assert all(torch.equal(beside[key], plain[key]) for key in plain)
    assert [path.name for path in (ran[0] / "beside" / "checkpoints").glob(".*")] == []


def test_the_same_ranks_go_on_bit_for_bit(ran):
    folder = ran[0]
    assert weights(folder / "resumed") == weights(folder / "plain") == weights(folder / "beside")
    assert metrics(folder / "resumed") == metrics(folder / "plain")[2:]


def test_one_process_goes_on_from_the_shards_of_two(ran, tmp_path):
    job = tiny_job(network={"dropout": 0.0}, train={"steps": 6, "warmup": 0})
    train(job, tmp_path, resume=str(ran[0] / "plain" / "checkpoints" / "step-00000004"), quiet=True)
    for one, other in zip(metrics(tmp_path), metrics(ran[0] / "plain")[4:], strict=True):
        assert one == pytest.approx(other, rel=2e-4)


def test_a_missing_shard_is_seen(ran, caplog):
    checkpoints = Checkpoints(ran[0] / "resumed" / "checkpoints", keep=9)
    newest = sorted((checkpoints.directory / "step-00000006" / "training").iterdir())[1]
    newest.unlink()
    found = checkpoints.latest()
    assert found is not None
    assert found.step == 4
    assert "is missing" in caplog.text


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_compiled_blocks_in_bfloat16_learn_the_same(ran, strategy):
    for one, other in zip(metrics(ran[0] / strategy), metrics(ran[0] / "plain"), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=0.03)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_shards_in_bfloat16_write_texts(ran, strategy):
    """Blocks that are gathered in bfloat16 are called in bfloat16 by samplers too."""
    texts = [record["texts"] for record in metrics(ran[0] / strategy, "sample")]
    assert [len(some) for some in texts] == [2]


def test_compiling_breaks_nowhere(ran):
    assert len(ran[1]) == 2
    for counted in ran[1]:
        assert counted["ok"] == counted["all"] > 0
        assert counted["breaks"] == {}
