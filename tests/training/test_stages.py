"""A stage of a lineage meets other texts, times, noise and dropout than those before it."""

import copy
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from multimdm import load
from multimdm.data.options import PrepareOptions
from multimdm.data.preparing import prepare
from multimdm.objectives import Batch, Sums, stratified_times
from multimdm.process import Streams
from multimdm.process.draws import uniform
from multimdm.training.building import adapt_job, distill_job
from multimdm.training.job import Job
from multimdm.training.loop import train
from multimdm.training.recipes import parse_recipe
from multimdm.training.schema import AdaptRecipe, DistillRecipe
from multimdm.training.settings import DataSettings
from multimdm.training.sources import open_source
from multimdm.training.step_plan import derive, stage_seed
from support.runs import TINY, metrics, tiny_distillation, tiny_job, weights

SEED, STEPS = 3, 2
TRAIN = {"steps": STEPS, "seed": SEED}
QUIET = {"validate_every": 0, "checkpoint_every": 1}


class _StopError(Exception):
    pass


@dataclass
class Seen:
    """What went through an objective, step by step."""

    inner: Any
    stop_after: int | None = None
    texts: list[torch.Tensor] = field(default_factory=list)
    times: list[torch.Tensor] = field(default_factory=list)
    noise: list[torch.Tensor] = field(default_factory=list)
    dropout: list[int] = field(default_factory=list)

    def __call__(self, network: Any, batch: Batch) -> Sums:
        if self.stop_after == batch.step:
            raise _StopError
        self.texts.append(batch.ids)
        self.times.append(batch.times)
        self.noise.append(uniform((len(batch.ids), 1), copy.deepcopy(batch.generator))[:, 0])
        self.dropout.append(torch.initial_seed())
        return self.inner(network, batch)


@dataclass(frozen=True)
class SeenDistillation:
    """The same of a distillation."""

    inner: Any
    seen: Seen

    @property
    def teacher_calls(self) -> int:
        return self.inner.teacher_calls

    def taught_by(self, teacher: Any) -> Any:
        self.seen.inner = self.inner.taught_by(teacher)
        return SeenObjective(self.seen.inner, self.seen)

    def next_teacher(self, step: int, steps: int) -> float:
        return self.inner.next_teacher(step, steps)

    def settings_at(self, step: int, steps: int) -> dict[str, float]:
        return self.inner.settings_at(step, steps)


@dataclass(frozen=True)
class SeenObjective(SeenDistillation):
    """With its teacher."""

    def __call__(self, network: Any, batch: Batch) -> Sums:
        return self.seen(network, batch)


def watched(job: Job, out: Path) -> Seen:
    seen = Seen(job.objective)
    distilled = hasattr(job.objective, "taught_by")
    job.objective = SeenDistillation(job.objective, seen) if distilled else seen
    train(job, out, quiet=True)
    return seen


def adapting(init: Path, **sections: Any) -> Job:
    data = {
        "init": str(init),
        "process": TINY["process"],
        "train": {**TINY["train"], **TRAIN},
        "log": {**TINY["log"], **QUIET},
    }
    return adapt_job(parse_recipe({**data, **sections}, AdaptRecipe, "test"), "adapted")


@pytest.fixture(scope="module")
def stages(tmp_path_factory) -> list[Seen]:
    """Pretrained, adapted and distilled, with one seed."""
    folder = tmp_path_factory.mktemp("stages")
    seen = [watched(tiny_job("first", system="mdlm", train=TRAIN, log=QUIET), folder / "first")]
    seen.append(watched(adapting(folder / "first" / "model"), folder / "second"))
    recipe = tiny_distillation(folder / "second" / "model", train=TRAIN, log=QUIET, consistency={"rounds": 1})
    seen.append(watched(distill_job(parse_recipe(recipe, DistillRecipe, "test"), "third"), folder / "third"))
    assert [step["command"] for step in load(folder / "third" / "model").lineage] == ["pretrain", "adapt", "distill"]
    return seen


def test_stages_share_no_story_no_time_no_noise_and_no_dropout(stages):
    for one, other in combinations(stages, 2):
        stories, others = ({tuple(row) for ids in x.texts for row in ids.tolist()} for x in (one, other))
        assert len(stories) == 8 * STEPS
        assert not stories & others
        for what in ("times", "noise"):
            numbers, more = (torch.cat(getattr(x, what)).tolist() for x in (one, other))
            assert len(set(numbers)) == 8 * STEPS
            assert not set(numbers) & set(more)
        assert not set(one.dropout) & set(other.dropout)


def test_a_first_stage_has_the_seeds_of_its_recipe(stages):
    first = stages[0]
    for step in range(STEPS):
        assert torch.equal(first.texts[step], open_source(DataSettings(), SEED).train(8 * step, 8).ids)
        generator = torch.Generator().manual_seed(derive(SEED, "times", step))
        assert torch.equal(first.times[step], stratified_times(8, generator))
        streams = Streams.spawn(derive(SEED, "noise"), 8, 8 * step)
        assert torch.equal(first.noise[step], uniform((8, 1), streams)[:, 0])
        assert first.dropout[step] == derive(SEED, "dropout", step, 0, 0)


def test_a_later_stage_goes_on_bit_for_bit(tmp_path):
    train(tiny_job("first", system="mdlm", train=TRAIN, log=QUIET), tmp_path / "first", quiet=True)
    init = tmp_path / "first" / "model"
    train(adapting(init), tmp_path / "whole", quiet=True)
    stopped = adapting(init)
    stopped.objective = Seen(stopped.objective, stop_after=1)
    with pytest.raises(_StopError):
        train(stopped, tmp_path / "run", quiet=True)
    train(adapting(init), tmp_path / "run", quiet=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


def test_only_what_was_trained_here_counts():
    imported, trained = {"imported": "mdlm"}, {"command": "adapt", "recipe": {}}
    lineages = [(), (trained,), (imported, trained, trained), (trained,) * 3]
    assert len({stage_seed(7, lineage) for lineage in lineages}) == len(lineages)
    assert stage_seed(7, ()) == stage_seed(7, (imported,)) == 7
    assert stage_seed(7, (imported, trained)) == stage_seed(7, (trained,)) != stage_seed(8, (trained,))


def test_prepared_data_come_in_another_order(tmp_path):
    """With all of them in every epoch, and the same to validate on."""
    (tmp_path / "text.txt").write_text("".join(f"line {i} says {i * i}\n" for i in range(60)))
    options = PrepareOptions(
        sources=(str(tmp_path / "text.txt"),), tokenizer="chars", length=32, layout="padded", valid_fraction=0.2
    )
    prepare(options, tmp_path / "data", False, lambda state: None)
    data = {"kind": "prepared", "path": str(tmp_path / "data")}
    job = tiny_job("first", system="mdlm", data=data)
    train(replace_steps(job), tmp_path / "first", quiet=True)
    second = adapting(tmp_path / "first" / "model", data=data)
    orders = [x.source.train(0, 48).ids.tolist() for x in (job, second)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    assert torch.equal(job.source.valid(0, 12).ids, second.source.valid(0, 12).ids)


def replace_steps(job: Job) -> Job:
    """One step is enough for a lineage."""
    return replace(job, recipe=replace(job.recipe, train=replace(job.recipe.train, steps=1, warmup=0)))
