"""Distillation in the loop: every method of every process learns, resumes in the middle of a round, and is refused
where it makes no sense."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from multimdm import load
from multimdm.data.options import PrepareOptions
from multimdm.data.prepared import PreparedData
from multimdm.data.preparing import prepare
from multimdm.models import DiT
from multimdm.pipeline import Model
from multimdm.pipeline.exchange import import_checkpoint
from multimdm.pipeline.files import read_safetensors
from multimdm.pipeline.settings import same_process
from multimdm.process import MultiMask
from multimdm.training.building import distill_job
from multimdm.training.job import Job
from multimdm.training.loop import train
from multimdm.training.recipes import parse_recipe
from multimdm.training.schema import DistillRecipe
from support.runs import finish, metrics, start, tiny_distillation, tiny_job, tiny_starts, weights

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def starts(tmp_path_factory) -> dict[str, Path]:
    return tiny_starts(tmp_path_factory.mktemp("starts"))


def job(init: Path, **sections: Any) -> Job:
    return distill_job(parse_recipe(tiny_distillation(init, **sections), DistillRecipe, "test"), "run")


METHODS: dict[str, Any] = {
    "gumbel": {},
    "gaussian": {"consistency": {"coupling": "gaussian", "teacher": "rounds"}},
    "markov": {"consistency": {"coupling": "markov", "divergence": "forward_kl"}},
    "sdtt": {"sdtt": {"delta": 0.125, "rounds": 3}},
}


@pytest.mark.parametrize(
    ("system", "method"),
    [(s, m) for s in ("mdlm", "multimdm", "duo") for m in METHODS if m != "gaussian" or s == "duo"],
)
def test_every_method_of_every_process(system, method, starts, tmp_path):
    outcome = train(job(starts[system], **METHODS[method]), tmp_path / "run", quiet=True)
    records = metrics(tmp_path / "run")
    first, grown = (0.125, 0.5) if method == "sdtt" else (0.25, 1.0)
    assert (records[0]["delta"], records[0]["round"]) == (first, 1)
    assert (records[-1]["delta"], records[-1]["round"]) == (grown, 3)
    assert all(record["loss"] > 0 for record in records)
    model = load(outcome.model)
    assert [step["command"] for step in model.lineage] == ["distill"]
    assert model.lineage[0]["recipe"]["init"] == str(starts[system])
    assert len(model.sample(num=2, steps=2, seed=0).texts) == 2


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    """A tiny DUO in its published layout, with 101 states, and texts of a tokenizer with 100 tokens, as GPT-2's."""
    folder = tmp_path_factory.mktemp("published")
    letters = "".join(chr(0x100 + number) for number in range(96))
    (folder / "letters.txt").write_text("\n".join(letters[n : n + 12] for n in range(85)), encoding="utf-8")
    options = PrepareOptions(sources=(str(folder / "letters.txt"),), tokenizer="chars", length=16, valid_fraction=0.1)
    prepare(options, folder / "data", False, lambda state: None)
    tokenizer = PreparedData.open(folder / "data" / "train").tokenizer()
    import_checkpoint(GOLDEN / "duo_dit", "duo", tokenizer=tokenizer).save(folder / "duo")
    return folder


@pytest.mark.parametrize("method", ["gaussian", "sdtt"])
def test_a_published_duo_with_one_state_more_than_tokens(method, published, tmp_path):
    sections = {**METHODS[method], "data": {"kind": "prepared", "path": str(published / "data")}}
    outcome = train(job(published / "duo", **sections, train={"steps": 3, "batch_size": 4}), tmp_path, quiet=True)
    model = load(outcome.model)
    assert model.tokenizer is not None
    assert (model.network.config.vocab_size, model.tokenizer.vocab_size) == (101, 100)
    assert len(model.sample(num=2, steps=2, seed=0).texts) == 2
    again = job(outcome.model, **sections)  # and it can be distilled once more
    assert same_process(again.model.process, model.process)


def test_other_vocabularies_are_refused(starts, published):
    data = {"kind": "prepared", "path": str(published / "data")}
    bare = {name: dataclasses.replace(load(starts[name]), tokenizer=None) for name in ("duo", "mdlm")}
    V = bare["mdlm"].network.config.vocab_size
    for name, model in bare.items():
        model.save(published / f"bare-{name}")
        with pytest.raises(ValueError, match=rf"must have the same vocabulary; .* has {V} tokens, the data 100"):
            job(published / f"bare-{name}", data=data)
    network = tiny_job(system="mdlm").model.network
    assert isinstance(network, DiT)
    masked = DiT(dataclasses.replace(network.config, vocab_size=101))
    Model(masked, MultiMask(101, 1)).save(published / "masked")
    with pytest.raises(ValueError, match="has 101 tokens, the data 100"):  # masks have no state to spare
        job(published / "masked", data=data)


def test_distillation_makes_the_first_step_agree_with_the_second(starts, tmp_path):
    """The loss falls while the step size stays."""
    sections: Any = {
        "train": {"steps": 60, "learning_rate": 0.003},
        "consistency": {"rounds": 1, "teacher": "rounds", "visible_target": "skip"},
    }
    train(job(starts["mdlm"], **sections), tmp_path / "run", quiet=True)
    losses = [record["loss"] for record in metrics(tmp_path / "run")]
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


class _StopError(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class _Stopping:
    """Stop like a pulled plug, in the middle of a step."""

    inner: Any
    last: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def taught_by(self, teacher):
        return _Stopping(self.inner.taught_by(teacher), self.last)

    def next_teacher(self, step, steps):
        return self.inner.next_teacher(step, steps)

    def settings_at(self, step, steps):
        return self.inner.settings_at(step, steps)

    def __call__(self, network, batch):
        if batch.step > self.last:
            raise _StopError
        return self.inner(network, batch)


@pytest.mark.parametrize("method", ["ema", "rounds", "sdtt"])
def test_a_run_stopped_within_a_round_goes_on_bit_for_bit(method, starts, tmp_path):
    """Step size, round and teacher are taken up; checkpoints at 3, 6 and 9, rounds of 4."""
    sections = METHODS["sdtt"] if method == "sdtt" else {"consistency": {"teacher": method}}
    train(job(starts["multimdm"], **sections), tmp_path / "whole", quiet=True)
    for last in (4, 8):
        stopped = job(starts["multimdm"], **sections)
        stopped.objective = _Stopping(stopped.objective, last)
        with pytest.raises(_StopError):
            train(stopped, tmp_path / "run", quiet=True)
    train(job(starts["multimdm"], **sections), tmp_path / "run", quiet=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


def test_the_teacher_follows_as_the_recipe_says(starts, tmp_path):
    """ema: mu times itself and the rest of the student, after every step; rounds: the student of a round's end."""
    start = load(starts["mdlm"]).network.state_dict()
    for method, share in (("ema", 0.5), ("rounds", 0.0)):
        sections: Any = {"consistency": {"teacher": method}, "log": {"checkpoint_every": 1, "keep": 12}}
        train(job(starts["mdlm"], **sections), tmp_path / method, quiet=True)
        saved = [
            read_safetensors(tmp_path / method / "checkpoints" / f"step-{n:08d}" / "training.safetensors")
            for n in range(1, 13)
        ]
        name = "output_layer.linear.weight"
        expected = start[name] + share * (saved[0][f"weights.{name}"] - start[name])
        torch.testing.assert_close(saved[0][f"teacher.{name}"], expected)
        if method == "rounds":
            for n in range(1, 12):
                student = saved[n // 4 * 4 - 1][f"weights.{name}"] if n >= 4 else start[name]
                torch.testing.assert_close(saved[n - 1][f"teacher.{name}"], student, rtol=0, atol=0)


def test_the_student_begins_as_the_checkpoint(starts):
    built = job(starts["multimdm"])
    assert isinstance(built.teacher, DiT)
    expected = load(starts["multimdm"])
    for network in (built.model.network, built.teacher):
        for name, tensor in network.state_dict().items():
            torch.testing.assert_close(tensor, expected.network.state_dict()[name], rtol=0, atol=0)
    assert built.model.network is not built.teacher


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_ranks_are_one_process(strategy, starts, tmp_path):
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(tiny_distillation(starts["multimdm"], log={"validate_every": 0})))
    train(job(starts["multimdm"], log={"validate_every": 0}), tmp_path / "alone", quiet=True)
    finish(start(["distill", str(recipe), "--out", str(tmp_path / "run"), "--train.strategy", strategy], ranks=2))
    assert [record["ranks"] for record in metrics(tmp_path / "run", "start")] == [2]
    for one, other in zip(metrics(tmp_path / "run"), metrics(tmp_path / "alone"), strict=True):
        assert one == pytest.approx(other, rel=1e-3), one


def _other_assignment(path: Path, target: Path) -> Path:
    model = load(path)
    assert isinstance(model.process, MultiMask)
    V, M = model.process.vocab_size, model.process.num_masks
    process = MultiMask(V, M, model.process.schedule, model.process.assignment.flip(0))
    dataclasses.replace(model, process=process).save(target)
    return target


def test_pairs_that_do_not_fit_are_refused(starts, tmp_path):
    multi = starts["multimdm"]
    for teacher in (starts["mdlm"], starts["duo"], _other_assignment(multi, tmp_path / "other")):
        with pytest.raises(ValueError, match="teacher and init must have the same process"):
            job(multi, teacher=str(teacher))
    small = tiny_job(network={"num_blocks": 1}).model
    small.save(tmp_path / "small")
    with pytest.raises(ValueError, match="networks of one shape"):
        job(multi, teacher=str(tmp_path / "small"))
    with pytest.raises(ValueError, match=r"init must be a diffusion model; .* is autoregressive"):
        job(starts["ar"])
    with pytest.raises(ValueError, match="coupling gaussian is DUO's"):
        job(multi, consistency={"coupling": "gaussian"})


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"consistency": {"delta": 1.5}}, r"consistency.delta: Input should be less than or equal to 1; got 1.5"),
        ({"consistency": {"delta": 0.25, "rounds": 4}}, "take at most 3 rounds"),
        ({"sdtt": {"delta": 0.25, "rounds": 3}}, "more than the whole time"),
        ({"train": {"steps": 10}}, "train.steps must be a multiple of the number of rounds, 3; got 10"),
        ({"sdtt": {"delta": 0.1, "rounds": 1}, "consistency": {}}, "give one of the sections consistency and sdtt"),
        ({"consistency": {"copling": "gumbel"}}, "did you mean 'consistency.coupling'"),
    ],
)
def test_recipes_that_make_no_sense(sections, message, starts):
    with pytest.raises(ValueError, match=message):
        job(starts["multimdm"], **sections)


def test_a_recipe_names_its_method(starts):
    data = tiny_distillation(starts["multimdm"])
    del data["consistency"]
    with pytest.raises(ValueError, match="give one of the sections"):
        parse_recipe(data, DistillRecipe, "test")


def test_a_moved_init_does_not_block_resuming(starts, tmp_path):
    """The same content in another place is the same run; other content is not."""
    train(job(starts["multimdm"]), tmp_path / "run", quiet=True)
    moved, other = tmp_path / "moved", tmp_path / "other"
    shutil.copytree(starts["multimdm"], moved)
    train(job(moved), tmp_path / "run", quiet=True)
    shutil.copytree(moved, other)
    config = json.loads((other / "config.json").read_text())
    config["lineage"] = []
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="was made with init = "):
        train(job(other), tmp_path / "run", quiet=True)
