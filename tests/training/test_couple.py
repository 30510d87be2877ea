"""Coupling in the loop: it learns, resumes within a set of matched pairs, keeps the laws, and is refused where it makes
no sense."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from multimdm import load
from multimdm.cli.main import main
from multimdm.models import DiT
from multimdm.pipeline.files import read_json, read_safetensors
from multimdm.process import MultiMask, Streams, clustered
from multimdm.samplers import Ancestral, Choice, generate, time_grid
from multimdm.training.building import distill_job, pretrain_job
from multimdm.training.couple_jobs import couple_job
from multimdm.training.engine import Engine
from multimdm.training.generated import GeneratedPairs
from multimdm.training.loop import Job, train
from multimdm.training.pairing import Pairing
from multimdm.training.recipes import parse_recipe
from multimdm.training.seeds import derive
from multimdm.training.settings import CoupleRecipe, DistillRecipe, PretrainRecipe
from multimdm.training.teacher import Teacher
from support.runs import TINY, finish, metrics, start, tiny, tiny_distillation, tiny_starts, weights
from support.statistics import REJECT, chi_square_p

MATCHING = {"size": 16, "reuse": 2}
"""Of batches of 8: a set is two steps, noise serves four, and checkpoints (every 3 steps) fall within both."""


@pytest.fixture(scope="module")
def starts(tmp_path_factory) -> dict[str, Path]:
    return tiny_starts(tmp_path_factory.mktemp("starts"))


def recipe(init: Path, **sections: Any) -> dict[str, Any]:
    data: dict[str, Any] = {
        "init": str(init),
        "train": {"steps": 12, "batch_size": 8, "learning_rate": 0.01, "warmup": 0, "decay": "constant", "ema": 0.9},
        "log": {**TINY["log"]},
        "matching": dict(MATCHING),
    }
    if init.name == "mdlm":
        data["process"] = {"num_masks": 5}
    for name, value in sections.items():
        data[name] = {**(data.get(name) or {}), **value} if isinstance(value, dict) else value
    return data


def job(init: Path, **sections: Any) -> Job:
    return couple_job(parse_recipe(recipe(init, **sections), CoupleRecipe, "test"), "run")


@pytest.mark.parametrize("system", ["mdlm", "multimdm"])
def test_a_model_is_coupled_saved_and_sampled_from(system, starts, tmp_path):
    outcome = train(job(starts[system]), tmp_path / "run", quiet=True)
    model = load(outcome.model)
    assert isinstance(model.process, MultiMask)
    assert model.process.tied_noise
    assert model.process.num_masks == 5
    assert read_json(outcome.model / "config.json")["process"]["tied_noise"] is True
    assert [step["command"] for step in model.lineage] == ["couple"]
    samples = model.sample(num=3, steps=3, seed=0, trace=True)
    assert samples.nfe == 3
    assert samples.trace is not None
    noise, later = samples.trace.states[0], samples.trace.states[1:]
    hidden = later[0] >= model.process.vocab_size
    kept = (later[0] == noise)[hidden].double().mean()  # at t = 2/3 a third is designated, at another mask mostly
    assert 0.55 < float(kept) < 0.95
    filled = model.infill("Lily found a [MASK] [MASK].", steps=2).ids
    assert bool((filled < model.process.vocab_size).all())
    with pytest.raises(ValueError, match="corrector is not for a model whose noise is tied"):
        model.sample(num=1, steps=2, corrector=0.1)


@pytest.mark.parametrize(
    "sections",
    [{"matching": {"solver": "greedy"}}, {"weight": "even"}, {"matching": {"blocks": 12, "group": 8}}, {"at_one": 0.0}],
    ids=str,
)
def test_every_option_can_be_trained_with(sections, starts, tmp_path):
    train(job(starts["mdlm"], **sections), tmp_path / "run", quiet=True)
    assert all(math.isfinite(record["loss"]) for record in metrics(tmp_path / "run"))
    assert metrics(tmp_path / "run")[-1]["matching_gain"] > 0


@pytest.mark.parametrize("learnt", [True, False])
def test_texts_of_several_lengths_are_matched(learnt, starts, tmp_path):
    """Padding is a token like others, or is hidden; then models do not learn where texts end and make no pairs."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{'ab ' * (n % 5 + 1)}{n % 7}\n" for n in range(64)), encoding="utf-8")
    files = [str(text), "--tokenizer", "chars", "--layout", "padded", "--length", "16", "--valid-fraction", "0.25"]
    assert main(["prepare", *files, "--out", str(tmp_path / "data")]) == 0
    data: Any = {"kind": "prepared", "path": str(tmp_path / "data"), "learn_padding": learnt}
    model = pretrain_job(parse_recipe(tiny(data=data, system="mdlm"), PretrainRecipe, "test"), "start").model
    model.save(tmp_path / "mdlm")
    outcome = train(job(tmp_path / "mdlm", data=data), tmp_path / "run", quiet=True)
    assert all(math.isfinite(record["loss"]) for record in metrics(tmp_path / "run"))
    again: Any = {"data": data, "matching": None, "generation": GENERATION}
    if learnt:
        train(job(outcome.model, **again), tmp_path / "again", quiet=True)
    else:
        with pytest.raises(ValueError, match="generation needs a model that learns where texts end"):
            job(outcome.model, **again)


def test_what_is_learnt_is_recorded(starts, tmp_path):
    train(job(starts["multimdm"]), tmp_path / "run", quiet=True)
    for record in metrics(tmp_path / "run"):
        assert record["loss"] == pytest.approx(0.25 * record["draft"] + 0.75 * record["path"], rel=1e-6)
        assert record["matching_gain"] > 0


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


@pytest.mark.parametrize("sections", [{}, {"matching": {"blocks": 16, "group": 4}}, {"matching": None}], ids=str)
def test_a_run_stopped_within_a_set_goes_on_bit_for_bit(sections, starts, tmp_path):
    """Checkpoints at 3, 6 and 9; new noise at 0, 4 and 8."""
    train(job(starts["multimdm"], **sections), tmp_path / "whole", quiet=True)
    for last in (3, 7, 10):
        stopped = job(starts["multimdm"], **sections)
        stopped.objective = _Stopping(stopped.objective, last)
        with pytest.raises(_StopError):
            train(stopped, tmp_path / "run", quiet=True)
    train(job(starts["multimdm"], **sections), tmp_path / "run", quiet=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_ranks_match_like_one_process(strategy, starts, tmp_path):
    """Equal pairs, and so equal losses; 80 strings are three parts, so that one rank runs one in vain."""
    sections: Any = {"log": {"validate_every": 0}, "matching": {"size": 80, "reuse": 1}, "train": {"steps": 11}}
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(recipe(starts["multimdm"], **sections)))
    train(job(starts["multimdm"], **sections), tmp_path / "alone", quiet=True)
    finish(start(["couple", str(file), "--out", str(tmp_path / "run"), "--train.strategy", strategy], ranks=2))
    assert [record["ranks"] for record in metrics(tmp_path / "run", "start")] == [2]
    for one, other in zip(metrics(tmp_path / "run"), metrics(tmp_path / "alone"), strict=True):
        assert one == pytest.approx(other, rel=1e-3), one
    first, second = (
        read_safetensors(tmp_path / name / "checkpoints" / "step-00000009" / "training.safetensors")["matching.origin"]
        for name in ("run", "alone")
    )
    assert torch.equal(first, second)
    assert sorted(first[0, :, 0].tolist()) == list(range(80))


# ------------------------------------------------------------------------------------------ pairs


def pairing(init: Path, **settings: Any) -> Pairing:
    built = job(init, matching=settings)
    assert built.matching is not None
    assert isinstance(built.model.process, MultiMask)
    engine = Engine(built.model.network, built.recipe.train)
    engine.network.eval()
    return Pairing(built.matching, engine, built.model.process, built.source, 0)


def test_noise_is_permuted_among_the_texts_of_a_set(starts):
    """Every set of texts gets the same strings, in an order of its own; new ones come when they are used up."""
    pairs = pairing(starts["multimdm"], size=32, reuse=2)
    found = []
    for first in (0, 64):
        assert pairs.due(first)
        pairs.refresh(first)
        assert not pairs.due(first + 63)
        found += [pairs.noise(first + start, 32) for start in (0, 32)]
        assert torch.equal(pairs.noise(first + 40, 8), found[-1][8:16])
    sets = [{tuple(row) for row in noise.tolist()} for noise in found]
    assert sets[0] == sets[1] != sets[2] == sets[3]
    assert not torch.equal(found[0], found[1])
    with pytest.raises(ValueError, match="texts 0 to 7 are not those that the noise in use is for"):
        pairs.noise(0, 8)


def test_matched_noise_is_uniform(starts):
    """Per position and over pairs of neighbours; every string once, since reuse repeats them."""
    pairs, drawn = pairing(starts["multimdm"], size=256, reuse=1), []
    for number in range(20):
        pairs.refresh(number * 256)
        drawn.append(pairs.noise(number * 256, 256))
    V, M = 404, 5
    noise = torch.cat(drawn) - V
    for place in range(0, 48, 6):
        counts = torch.bincount(noise[:, place], minlength=M)
        assert chi_square_p(counts, torch.full((M,), 1 / M)) > REJECT
        together = torch.bincount(noise[:, place] * M + noise[:, place + 1], minlength=M * M)
        assert chi_square_p(together, torch.full((M * M,), 1 / M**2)) > REJECT


def test_matching_makes_the_texts_more_probable(starts):
    pairs = pairing(starts["multimdm"], size=64, reuse=1)
    pairs.refresh(0)
    whole = pairs.gain
    blocks = pairing(starts["multimdm"], size=64, reuse=1, blocks=16, group=16)
    blocks.refresh(0)
    assert blocks.gain > whole > 0


def test_masks_that_are_copies_leave_nothing_to_match_by(starts):
    """Which is why they are told apart."""
    same = pairing(starts["mdlm"], size=32, reuse=1)
    same.refresh(0)
    blind = couple_job(parse_recipe(recipe(starts["mdlm"], mask_noise=0.0), CoupleRecipe, "test"), "run")
    assert isinstance(blind.model.process, MultiMask)
    assert blind.matching is not None
    engine = Engine(blind.model.network, blind.recipe.train)
    engine.network.eval()
    copies = Pairing(blind.matching, engine, blind.model.process, blind.source, 0)
    copies.refresh(0)
    assert copies.gain == pytest.approx(0.0, abs=1e-3)
    assert same.gain > 0.01
    rows, copied = (x._engine.network.state_dict()["vocab_embed.embedding"] for x in (same, copies))
    moved = rows - copied
    assert not bool(moved[:404].any())  # tokens
    assert not bool(rows[409:].any())  # rows for the noise that is shown
    size = moved[404:409].std() / copied[404:409].square().mean().sqrt()
    assert float(size) == pytest.approx(0.1, rel=0.3)


def test_the_noise_comes_to_tell_of_the_text(tmp_path, starts):
    """After some training the prediction at t = 1 is better than with noise that is drawn independently."""
    sections: Any = {"train": {"steps": 150, "learning_rate": 0.01}, "log": {"validate_every": 0, "every": 150}}
    drafts = {}
    for name, matching in (("matched", {"size": 128, "reuse": 4}), ("independent", None)):
        built = job(starts["multimdm"], matching=matching, **sections)
        train(built, tmp_path / name, quiet=True)
        drafts[name] = metrics(tmp_path / name)[-1]["draft"]
    assert drafts["independent"] - math.log(128) < drafts["matched"] < drafts["independent"] - 0.02


# -------------------------------------------------------------------------------- generated pairs

GENERATION = {"size": 16, "reuse": 2, "steps": 3}
"""Made at the steps 0, 4 and 8 of batches of 8."""


@pytest.fixture(scope="module")
def coupled(starts, tmp_path_factory) -> Path:
    return train(job(starts["multimdm"]), tmp_path_factory.mktemp("coupled") / "run", quiet=True).model


def generated(init: Path, **settings: Any) -> GeneratedPairs:
    built = job(init, matching=None, generation={**GENERATION, **settings})
    assert built.generation is not None
    assert isinstance(built.model.process, MultiMask)
    assert built.teacher is not None
    engine = Engine(built.model.network, built.recipe.train)
    teacher = Teacher(engine, built.teacher)
    return GeneratedPairs(built.generation, engine, teacher, built.model.process, built.source.length, 0)


def test_generated_texts_are_what_the_noise_leads_to(coupled):
    """By the checkpoint's own sampler, in as many steps and at the temperature that were asked for."""
    pairs, model = generated(coupled, size=80, reuse=1, temperature=0.7), load(coupled)
    assert isinstance(model.process, MultiMask)
    for first in (0, 80):
        assert pairs.due(first)
        pairs.refresh(first)
        examples, noises = zip(*(pairs.train(first + start, 8) for start in range(0, 80, 8)), strict=True)
        noise, ids = torch.cat(noises), torch.cat([example.ids for example in examples])
        assert all(bool(example.valid.all()) for example in examples)
        sampler = Ancestral(time_grid("uniform", 3), Choice(temperature=0.7))
        streams = Streams.spawn(derive(0, "generated texts"), 80, first)
        alone = generate(model.network, model.process, sampler, torch.zeros_like(noise), generator=streams, noise=noise)
        assert torch.equal(alone.ids, ids)
    with pytest.raises(ValueError, match="texts 0 to 7 are not those that the noise in use is for"):
        pairs.train(0, 8)


def test_the_noise_of_generated_texts_is_uniform(coupled):
    pairs = generated(coupled, size=2000, reuse=1, steps=1)
    pairs.refresh(0)
    noise, M = pairs.train(0, 2000)[1] - 404, 5
    for place in range(0, 48, 6):
        together = torch.bincount(noise[:, place] * M + noise[:, place + 1], minlength=M * M)
        assert chi_square_p(together, torch.full((M * M,), 1 / M**2)) > REJECT


def test_pairs_are_used_as_often_as_asked_for(coupled):
    pairs = generated(coupled)
    pairs.refresh(32)
    assert pairs.due(31)
    assert not pairs.due(63)
    assert pairs.due(64)
    (first, noise), (second, same) = pairs.train(40, 8), pairs.train(56, 8)
    assert torch.equal(first.ids, second.ids)
    assert torch.equal(noise, same)


def test_a_model_learns_from_its_own_pairs(coupled, tmp_path):
    """What the noise led to in many steps becomes more probable in the first."""
    sections: Any = {"train": {"steps": 60}, "log": {"validate_every": 0, "every": 20}, "at_one": 0.9}
    again: Any = {"matching": None, "generation": {"size": 32, "reuse": 30, "steps": 16, "temperature": 0.5}}
    outcome = train(job(coupled, **sections, **again), tmp_path / "run", quiet=True)
    drafts = [record["draft"] for record in metrics(tmp_path / "run")]
    assert drafts[-1] < drafts[0] - 0.05
    model = load(outcome.model)
    assert [step["command"] for step in model.lineage] == ["couple", "couple"]
    assert model.process.tied_noise  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]


def test_pairs_are_made_by_a_network_that_does_not_see_the_noise_too(starts, tmp_path):
    hidden = train(job(starts["multimdm"], noise_shown=False), tmp_path / "hidden", quiet=True).model
    again: Any = {"matching": None, "generation": GENERATION, "noise_shown": False}
    train(job(hidden, **again), tmp_path / "again", quiet=True)
    assert all(math.isfinite(record["loss"]) for record in metrics(tmp_path / "again"))


def test_a_run_on_generated_pairs_goes_on_bit_for_bit(coupled, tmp_path):
    again: Any = {"matching": None, "generation": GENERATION}
    train(job(coupled, **again), tmp_path / "whole", quiet=True)
    for last in (3, 7, 10):
        stopped = job(coupled, **again)
        stopped.objective = _Stopping(stopped.objective, last)
        with pytest.raises(_StopError):
            train(stopped, tmp_path / "run", quiet=True)
    train(job(coupled, **again), tmp_path / "run", quiet=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_ranks_make_the_pairs_of_one_process(strategy, coupled, tmp_path):
    sections: Any = {"log": {"validate_every": 0}, "train": {"steps": 4}}
    again: Any = {"matching": None, "generation": {**GENERATION, "size": 160}}
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(recipe(coupled, **sections, **again)))
    train(job(coupled, **sections, **again), tmp_path / "alone", quiet=True)
    finish(start(["couple", str(file), "--out", str(tmp_path / "run"), "--train.strategy", strategy], ranks=2))
    first, second = (
        read_safetensors(tmp_path / name / "checkpoints" / "step-00000003" / "training.safetensors")["generated.texts"]
        for name in ("run", "alone")
    )
    assert torch.equal(first, second)


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("system", "sections", "message"),
    [
        ("duo", {}, "init must be a masked or multi-mask diffusion model, or with quantile .*; .* has Uniform"),
        ("ar", {}, "init must be a masked or multi-mask diffusion model, or with quantile .*; .* has None"),
        ("mdlm", {"process": None}, "process.num_masks must be at least 2: .* has one mask"),
        ("mdlm", {"process": {"num_masks": 1}}, "process.num_masks must be at least 2"),
        ("multimdm", {"process": {"num_masks": 7}}, "process must have the masks of init, or be left out"),
        ("multimdm", {"process": {"num_masks": 5, "assignment": "random"}}, "process must have the masks of init"),
        ("multimdm", {"matching": {"size": 12}}, "matching.size must be a multiple of train.batch_size, 8; got 12"),
        ("multimdm", {"matching": {"size": 1}}, "matching.size: Input should be greater than or equal to 2"),
        ("multimdm", {"matching": {"blocks": 4, "group": 5}}, "group must divide size, 16; got 5"),
        ("multimdm", {"matching": {"solver": "best"}}, "matching.solver"),
        ("multimdm", {"at_one": 1.0}, "at_one: Input should be less than 1"),
        ("multimdm", {"matching": {"sise": 16}}, "did you mean 'matching.size'"),
        ("multimdm", {"generation": {}}, "with generation there is nothing to match: add matching: null"),
        ("multimdm", {"matching": None, "generation": {"size": 12}}, "generation.size must be a multiple of .* 8; got"),
        ("multimdm", {"matching": None, "generation": {"size": 16}}, "generation needs an init whose noise is tied"),
    ],
)
def test_recipes_that_make_no_sense(system, sections, message, starts):
    with pytest.raises(ValueError, match=message):
        job(starts[system], **sections)


def test_pairs_are_made_by_the_process_that_they_are_for(coupled):
    with pytest.raises(ValueError, match="with generation process and noise_shown must be those of init"):
        job(coupled, matching=None, generation=GENERATION, process={"num_masks": 5, "rho": 3.0})


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


def distillation(init: Path, **sections: Any) -> Job:
    usual: Any = {"consistency": {"coupling": "anchored"}, "matching": dict(MATCHING)}
    return distill_job(parse_recipe(tiny_distillation(init, **{**usual, **sections}), DistillRecipe, "test"), "run")


def test_a_coupled_model_is_distilled_along_its_own_paths(coupled, tmp_path):
    outcome = train(distillation(coupled), tmp_path / "run", quiet=True)
    model = load(outcome.model)
    assert isinstance(model.process, MultiMask)
    assert model.process.tied_noise
    assert [step["command"] for step in model.lineage] == ["couple", "distill"]
    assert all(math.isfinite(record["loss"]) and record["loss"] > 0 for record in metrics(tmp_path / "run"))
    stopped = distillation(coupled)
    for last in (4,):
        stopped.objective = _StoppingDistillation(stopped.objective, last)
        with pytest.raises(_StopError):
            train(stopped, tmp_path / "again", quiet=True)
    train(distillation(coupled), tmp_path / "again", quiet=True)
    assert weights(tmp_path / "again") == weights(tmp_path / "run")


class _StoppingDistillation(_Stopping):
    def taught_by(self, teacher):
        return _StoppingDistillation(self.inner.taught_by(teacher), self.last)

    def next_teacher(self, step, steps):
        return self.inner.next_teacher(step, steps)

    def settings_at(self, step, steps):
        return self.inner.settings_at(step, steps)


def test_sdtt_keeps_the_tie(coupled, starts, tmp_path):
    sections: Any = {"consistency": None, "sdtt": {"delta": 0.125, "rounds": 2}, "train": {"steps": 4}}
    model = load(train(distillation(coupled, **sections), tmp_path / "run", quiet=True).model)
    assert isinstance(model.process, MultiMask)
    assert model.process.tied_noise
    assert all(math.isfinite(record["loss"]) and record["loss"] > 0 for record in metrics(tmp_path / "run"))
    hidden = train(job(starts["multimdm"], noise_shown=False), tmp_path / "hidden", quiet=True).model
    with pytest.raises(ValueError, match="needs a network that is shown the noise"):
        distillation(hidden, **sections)


def test_distillation_keeps_the_tie_or_is_refused(coupled, starts):
    with pytest.raises(ValueError, match="is tied to the text: give the section matching"):
        distillation(coupled, matching=None)
    with pytest.raises(ValueError, match="is tied to the text: give the section matching"):
        distillation(coupled, matching=None, consistency={"coupling": "gumbel"})
    with pytest.raises(ValueError, match=r"matching needs consistency\.coupling: anchored"):
        distillation(coupled, consistency={"coupling": "gumbel"})
    with pytest.raises(ValueError, match="matching is for an init whose noise is tied to the text"):
        distillation(starts["multimdm"])
    with pytest.raises(ValueError, match="coupling anchored is for an init whose noise is tied to the text"):
        distillation(starts["multimdm"], matching=None)
    with pytest.raises(ValueError, match="coupling anchored is for masks"):
        distillation(starts["duo"], matching=None)
    with pytest.raises(ValueError, match="must have the same process"):
        distillation(coupled, teacher=str(starts["multimdm"]))
