"""Quantile noise for models that have masks already: what they keep, what is refused, and distillation on top."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from multimdm import load
from multimdm._files import read_json
from multimdm.models import DiT
from multimdm.process import MultiMask, clustered
from multimdm.training.building import distill_job
from multimdm.training.couple_jobs import couple_job
from multimdm.training.job import Job
from multimdm.training.loop import train
from multimdm.training.recipes import parse_recipe
from multimdm.training.schema import CoupleRecipe, DistillRecipe
from multimdm.training.step_plan import derive
from support.runs import TINY, metrics, tiny_distillation, tiny_starts

EXACT = {"teacher": "tales"}


@pytest.fixture(scope="module")
def starts(tmp_path_factory) -> dict[str, Path]:
    return tiny_starts(tmp_path_factory.mktemp("starts"))


def recipe(init: Path, **sections: Any) -> dict[str, Any]:
    data: dict[str, Any] = {
        "init": str(init),
        "train": {"steps": 6, "batch_size": 8, "learning_rate": 0.01, "warmup": 0, "decay": "constant", "ema": 0.9},
        "log": {**TINY["log"]},
        "quantile": dict(EXACT),
    }
    if init.name == "mdlm":
        data["process"] = {"num_masks": 5}
    for name, value in sections.items():
        data[name] = {**(data.get(name) or {}), **value} if isinstance(value, dict) else value
    return data


def job(init: Path, **sections: Any) -> Job:
    return couple_job(parse_recipe(recipe(init, **sections), CoupleRecipe, "test"), "run")


@pytest.fixture(scope="module")
def coupled(starts, tmp_path_factory) -> Path:
    return train(job(starts["multimdm"]), tmp_path_factory.mktemp("coupled") / "run", quiet=True).model


@pytest.mark.parametrize("system", ["mdlm", "multimdm"])
def test_a_model_is_coupled_saved_and_sampled_from(system, starts, tmp_path):
    outcome = train(job(starts[system]), tmp_path / "run", quiet=True)
    model = load(outcome.model)
    assert isinstance(model.process, MultiMask)
    assert model.process.tied_noise
    assert model.process.num_masks == 5
    assert read_json(outcome.model / "config.json")["process"]["tied_noise"] is True
    assert [step["command"] for step in model.lineage] == ["couple"]
    samples = model.sample(num=3, steps=3, seed=0, order="ancestral", temperature=1.0, trace=True)
    assert samples.nfe == 3
    assert samples.trace is not None
    noise, later = samples.trace.states[0], samples.trace.states[1:]
    hidden = later[0] >= model.process.vocab_size
    kept = (later[0] == noise)[hidden].double().mean()  # at t = 2/3 a third is designated, at another mask mostly
    assert 0.55 < float(kept) < 0.95
    filled = model.infill("Lily found a [MASK] [MASK].", steps=2).ids
    assert bool((filled < model.process.vocab_size).all())
    with pytest.raises(ValueError, match="corrector is not for a model whose noise is tied"):
        model.sample(num=1, steps=2, order="ancestral", corrector=0.1)


@pytest.mark.parametrize("sections", [{"weight": "even"}, {"at_one": 0.0}, {"noise_shown": False}], ids=str)
def test_every_option_can_be_trained_with(sections, starts, tmp_path):
    train(job(starts["mdlm"], **sections), tmp_path / "run", quiet=True)
    records = metrics(tmp_path / "run")
    assert all(math.isfinite(record["loss"]) for record in records)


def test_checkpoints_without_the_field_are_not_tied(starts):
    assert not load(starts["multimdm"]).process.tied_noise  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    written = read_json(starts["multimdm"] / "config.json")["process"]
    del written["tied_noise"]
    from multimdm.pipeline.settings import ProcessSettings, read_as

    assert read_as(ProcessSettings, written, "here").tied_noise is False
    with pytest.raises(ValueError, match="tied_noise is for kind multimask; the kind is uniform"):
        read_as(ProcessSettings, {"kind": "uniform", "vocab_size": 4, "tied_noise": True}, "here")


class _StopError(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class _Stopping:
    """Stop like a pulled plug, in the middle of a step."""

    inner: Any
    last: int

    def __call__(self, network, batch):
        if batch.step > self.last:
            raise _StopError
        return self.inner(network, batch)


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("system", "sections", "message"),
    [
        ("duo", {}, "init must be an autoregressive, masked or multi-mask model; .* has Uniform"),
        ("mdlm", {"process": None}, "process.num_masks must be at least 2: .* has one mask"),
        ("mdlm", {"process": {"num_masks": 1}}, "process.num_masks must be at least 2"),
        ("multimdm", {"process": {"num_masks": 7}}, "process must have the masks of init, or be left out"),
        ("multimdm", {"process": {"num_masks": 5, "assignment": "random"}}, "process must have the masks of init"),
        ("multimdm", {"at_one": 1.0}, "at_one: Input should be less than 1"),
        ("multimdm", {"quantile": {"ordr": "id"}}, "did you mean 'quantile.order'"),
    ],
)
def test_recipes_that_make_no_sense(system, sections, message, starts):
    with pytest.raises(ValueError, match=message):
        job(starts[system], **sections)


def test_a_multi_mask_init_may_get_another_schedule(starts):
    process = job(starts["multimdm"], process={"num_masks": 5, "rho": 3.0}).model.process
    assert isinstance(process, MultiMask)
    assert process.tied_noise
    assert process.schedule.rho == 3.0


def test_masks_by_clusters_are_made_of_a_masked_init_and_kept_of_a_multi_mask_one(starts, tmp_path):
    masked, choice = load(starts["mdlm"]), {"num_masks": 5, "assignment": "clustered"}
    first = job(starts["mdlm"], process=choice)
    assert isinstance(masked.network, DiT)
    assert isinstance(first.model.process, MultiMask)
    V = first.model.process.vocab_size
    wanted = clustered(masked.network.vocab_embed.embedding[:V], 5, derive(first.recipe.train.seed, "assignment"))
    torch.testing.assert_close(first.model.process.assignment, wanted)
    outcome = train(first, tmp_path / "run", quiet=True)
    second = job(outcome.model, process={**choice, "rho": 3.0}).model.process
    assert isinstance(second, MultiMask)
    torch.testing.assert_close(second.assignment, wanted)
    assert second.schedule.rho == 3.0
    with pytest.raises(ValueError, match=r"process must have the masks of init.* 4 masks, assignment clustered"):
        job(outcome.model, process={**choice, "num_masks": 4})
    with pytest.raises(ValueError, match=r"process must have the masks of init.* 5 masks, assignment modulo"):
        job(outcome.model, process={**choice, "assignment": "modulo"})


def test_random_masks_are_kept_whatever_the_seed(starts, tmp_path):
    choice = {"num_masks": 5, "assignment": "random"}
    first = job(starts["mdlm"], process=choice)
    outcome = train(first, tmp_path / "run", quiet=True)
    second = job(outcome.model, process={**choice, "rho": 3.0}, train={"seed": 1}).model.process
    assert isinstance(first.model.process, MultiMask)
    assert isinstance(second, MultiMask)
    torch.testing.assert_close(second.assignment, first.model.process.assignment)


# ----------------------------------------------------------------------------------- distillation


def test_a_coupled_model_is_not_distilled(coupled):
    """Neither way gained anything beside training on (docs/quantile.md)."""
    rounds = {"delta": 0.125, "rounds": 2}
    for sections in ({"consistency": rounds}, {"consistency": None, "sdtt": rounds}):
        recipe = parse_recipe(tiny_distillation(coupled, **sections), DistillRecipe, "test")
        with pytest.raises(ValueError, match=r"is tied to the text: .* train it longer by multimdm couple"):
            distill_job(recipe, "run")
