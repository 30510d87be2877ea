"""Contexts with mistakes and densities of times in the loop: from the recipe to the steps, on any division of them."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from multimdm.cli.main import main
from multimdm.objectives import Consistency, Context, Elbo, Sdtt, stratified_times
from multimdm.objectives.times import draw_times
from multimdm.training.building import adapt_job, distill_job
from multimdm.training.job import Job
from multimdm.training.loop import train
from multimdm.training.recipes import parse_recipe
from multimdm.training.schema import AdaptRecipe, CoupleRecipe, DistillRecipe, PretrainRecipe
from multimdm.training.step_plan import derive
from support.runs import (
    TINY,
    finish,
    metrics,
    pretraining,
    start,
    tiny,
    tiny_distillation,
    tiny_job,
    tiny_starts,
    weights,
)

BELL = {"density": "bell", "center": 0.7}
MARGINAL = {"by": "marginal"}
OWN = {"by": "own", "share": 0.4}
SECTIONS: dict[str, Any] = {"context": OWN, "network": {"dropout": 0.0}}


@pytest.fixture(scope="module")
def starts(tmp_path_factory) -> dict[str, Path]:
    return tiny_starts(tmp_path_factory.mktemp("starts"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """On one process, at once."""
    out = tmp_path_factory.mktemp("alone") / "run"
    train(with_both(), out, quiet=True)
    return out


def with_both(**train_settings: Any) -> Job:
    return tiny_job("run", train={"times": BELL, **train_settings}, **SECTIONS)


class _StopError(Exception):
    pass


def _stopping(job: Job, after: int) -> Job:
    """Stop like a pulled plug, in the middle of a step."""
    inner, calls = job.objective, 0
    assert isinstance(inner, Elbo)

    def objective(network, batch):
        nonlocal calls
        calls += 1
        if calls > after:
            raise _StopError
        return inner(network, batch)

    job.objective = objective
    return job


def test_a_stopped_run_goes_on_bit_for_bit(alone, tmp_path):
    with pytest.raises(_StopError):
        train(_stopping(with_both(), after=8), tmp_path / "run", quiet=True)
    train(with_both(), tmp_path / "run", quiet=True)
    assert weights(tmp_path / "run") == weights(alone)
    assert metrics(tmp_path / "run") == metrics(alone)


def test_accumulation_does_not_change_the_losses(alone, tmp_path):
    train(with_both(micro_batch=2), tmp_path / "run", quiet=True)
    for one, other in zip(metrics(tmp_path / "run"), metrics(alone), strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_sharded_ranks_wait_for_each_others_draws(alone, tmp_path):
    """With one sequence at a time, many parts have no mistakes, and other ranks have some."""
    sections = {**SECTIONS, "train": {"times": BELL}}
    arguments = [*pretraining(tmp_path, **sections), "--train.strategy", "fsdp", "--train.micro-batch", "1"]
    finish(start(arguments, ranks=2))
    for one, other in zip(metrics(tmp_path / "run"), metrics(alone), strict=True):
        assert one == pytest.approx(other, rel=2e-4)


def test_both_change_what_is_learnt(alone, tmp_path):
    for name, sections in (("times", {"train": {"times": BELL}}), ("context", {"context": OWN})):
        with pytest.raises(ValueError, match=rf"was made with {'context' if name == 'times' else 'train.times'}"):
            train(tiny_job("run", network={"dropout": 0.0}, **sections), alone, quiet=True)
    train(tiny_job("run", network={"dropout": 0.0}), tmp_path / "plain", quiet=True)
    assert weights(tmp_path / "plain") != weights(alone)


@pytest.mark.parametrize("by", ["uniform", "marginal", "own"])
def test_a_share_of_zero_is_the_run_without_mistakes(by, tmp_path):
    short = {"steps": 3}
    train(tiny_job("run", train=short), tmp_path / "plain", quiet=True)
    train(tiny_job("run", train=short, context={"by": by, "share": 0.0}), tmp_path / "zero", quiet=True)
    assert weights(tmp_path / "plain") == weights(tmp_path / "zero")
    assert metrics(tmp_path / "plain", "valid") == metrics(tmp_path / "zero", "valid")


@pytest.mark.parametrize(("weight", "weighed"), [("elbo", True), ("density", False)])
def test_batches_have_the_times_of_the_recipe(weight, weighed, tmp_path):
    job, seen = with_both(steps=2, times={**BELL, "weight": weight}), []
    inner = job.objective
    assert isinstance(inner, Elbo)

    def objective(network, batch):
        seen.append((batch.times, batch.weight))
        return inner(network, batch)

    job.objective = objective
    train(job, tmp_path / "run", quiet=True)
    for step, (times, weights_) in enumerate(seen):
        generator = torch.Generator().manual_seed(derive(TINY["train"].get("seed", 0), "times", step))
        expected = draw_times(job.recipe.train.times, stratified_times(8, generator))
        assert torch.equal(times, expected.times)
        assert (weights_ is not None) == weighed
        if weighed:
            assert expected.weight is not None
            assert torch.equal(weights_, expected.weight)


@pytest.mark.parametrize("system", ["mdlm", "duo", "multimdm", "candi"])
def test_every_system_of_diffusion_takes_times(system, tmp_path):
    sections = {"relaxation": {"share": 0.5}} if system == "duo" else {}
    job = tiny_job("run", system=system, train={"steps": 4, "times": {"density": "late"}}, **sections)
    assert train(job, tmp_path / "run", quiet=True).nelbo is not None


# ----------------------------------------------------------------- the laws


def law_of(job: Job) -> torch.Tensor | None:
    assert isinstance(job.objective, (Elbo, Consistency, Sdtt))
    assert isinstance(job.objective.context, Context)
    return job.objective.context.law


def test_the_laws_are_those_of_the_data(starts):
    uniform, marginal, own = (law_of(tiny_job(context={"by": by})) for by in ("uniform", "marginal", "own"))
    assert uniform is not None
    assert marginal is not None
    assert torch.equal(uniform, torch.ones_like(uniform))
    assert torch.equal(marginal, tiny_job().source.counts().double())
    assert own is None


def test_ids_in_reserve_are_never_put_in():
    """LLaDA's vocabulary has ids that no text has, and masks lie there."""
    network = {"architecture": "llada", "dropout": 0.0, "size": "tiny", "hidden_dim": 16, "num_blocks": 1}
    for by in ("uniform", "marginal"):
        job = tiny_job(network=network, context={"by": by})
        law, tokens = law_of(job), job.source.tokenizer.vocab_size
        assert law is not None
        assert len(law) > tokens
        assert float(law[:tokens].sum()) > 0
        assert float(law[tokens:].sum()) == 0


def test_adaptation_and_distillation_take_them_too(starts, tmp_path):
    short = {**TINY["train"], "steps": 3, "times": {"density": "late", "weight": "density"}}
    adaptation = {"init": str(starts["mdlm"]), "process": {"num_masks": 5}, "train": short, "log": TINY["log"]}
    jobs = {"adapt": adapt_job(parse_recipe({**adaptation, "context": MARGINAL}, AdaptRecipe, "here"), "run")}
    for name, sections in (("gumbel", {}), ("sdtt", {"sdtt": {"delta": 0.125, "rounds": 3}})):
        sections = {**sections, "context": OWN, "train": {"steps": 3, "times": BELL}}
        recipe = parse_recipe(tiny_distillation(starts["multimdm"], **sections), DistillRecipe, "here")
        jobs[name] = distill_job(recipe, "run")
    for name, job in jobs.items():
        assert (law_of(job) is None) == (name != "adapt")
        assert train(job, tmp_path / name, quiet=True).nelbo is not None


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize("system", ["duo", "candi", "ar"])
def test_contexts_are_of_masked_systems(system):
    with pytest.raises(ValueError, match=f"context is for masked systems, mdlm and multimdm; the system is {system}"):
        parse_recipe(tiny(system=system, context=MARGINAL), PretrainRecipe, "here")


def test_what_has_no_times_takes_none(starts):
    with pytest.raises(ValueError, match=r"train.times is for diffusion; the system is ar"):
        parse_recipe(tiny(system="ar", train={"times": BELL}), PretrainRecipe, "here")
    tied = {"init": str(starts["ar"]), "train": {"times": BELL}}
    with pytest.raises(ValueError, match=r"train.times must be left out where noise is tied to the text.*bell"):
        parse_recipe(tied, CoupleRecipe, "here")
    with pytest.raises(ValueError, match="there is no key 'context'"):
        parse_recipe({"init": str(starts["ar"]), "context": MARGINAL}, CoupleRecipe, "here")


def test_uniform_states_are_distilled_as_they_are(starts):
    recipe = parse_recipe(tiny_distillation(starts["duo"], context=MARGINAL), DistillRecipe, "here")
    with pytest.raises(ValueError, match="context is for masked processes"):
        distill_job(recipe, "run")


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"context": {"by": "own", "share": 1.5}}, "context.share: Input should be less than or equal to 1; got 1.5"),
        ({"context": {"by": "mine"}}, "context.by: Input should be 'none', 'uniform', 'marginal' or 'own'; got 'mine'"),
        ({"context": {"share": 0.3}}, "context: by must be uniform, marginal or own.*got none with share 0.3"),
        ({"context": {"shares": 0.5}}, "there is no key 'context.shares'; did you mean 'context.share'"),
        ({"train": {"times": {"power": 2.0}}}, "train.times: power is for density late; got 2 with uniform"),
        ({"train": {"times": {"mean": 0.5}}}, "there is no key 'train.times.mean'"),
    ],
)
def test_bad_recipes(sections, message):
    with pytest.raises(ValueError, match=message):
        parse_recipe(tiny(**sections), PretrainRecipe, "here")


def test_the_command_line_takes_both(tmp_path):
    arguments = pretraining(tmp_path, train={"steps": 2})
    options = ["--context.by", "marginal", "--context.share", "0.2", "--train.times.density", "late"]
    assert main([*arguments, *options, "--train.times.power", "2"]) == 0
    recipe = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert recipe["context"] == {"by": "marginal", "share": 0.2, "sequences": 0.5}
    assert recipe["train"]["times"]["power"] == 2
