"""From one mask to many: what the masks begin as, how they are read, and that a checkpoint remembers it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import multimdm
from multimdm.evaluation.held_out import validation_times
from multimdm.evaluation.nelbo import nelbo_sums
from multimdm.models import DiT
from multimdm.models.expand import noise_offsets, token_offsets
from multimdm.objectives import Elbo
from multimdm.pipeline import Model
from multimdm.pipeline.settings import same_process
from multimdm.process import MultiMask, Streams
from multimdm.training.building import adapt_job, distill_job
from multimdm.training.couple_jobs import couple_job
from multimdm.training.job import Job
from multimdm.training.loop import train
from multimdm.training.recipes import parse_recipe
from multimdm.training.schema import AdaptRecipe, CoupleRecipe, DistillRecipe
from multimdm.training.step_plan import derive
from support.runs import TINY, finish, metrics, start, tiny_distillation, tiny_job, weights
from support.tiny_models import TALES

V, M = TALES.vocab_size, 5


@pytest.fixture(scope="module")
def masked(tmp_path_factory) -> Path:
    """A masked diffusion model that has learnt which words are frequent."""
    out = tmp_path_factory.mktemp("mdlm") / "run"
    learning = {"steps": 60, "learning_rate": 0.03, "ema": 0.0}
    log = {"checkpoint_every": 60, "validate_every": 0}
    return train(tiny_job("mdlm", system="mdlm", train=learning, log=log), out, quiet=True).model


def recipe(init: Path, **sections: Any) -> AdaptRecipe:
    data: dict[str, Any] = {"init": str(init), "process": {"num_masks": M}, "train": TINY["train"], "log": TINY["log"]}
    for name, value in sections.items():
        data[name] = {**data.get(name, {}), **value} if isinstance(value, dict) else value
    return parse_recipe(data, AdaptRecipe, "test")


def adapted(init: Path, **sections: Any) -> Job:
    return adapt_job(recipe(init, **sections), "adapted")


def bound(model: Model) -> float:
    ids = TALES.sample(256, torch.Generator().manual_seed(1))
    times = validation_times(256, 2, seed=2)
    return nelbo_sums(model.network, model.process, ids, None, times, Streams.spawn(3, 256)).estimate().total


def test_at_step_zero_bayes_rule_reads_what_copies_cannot(masked):
    """Copies of one mask, with and without the evidence of the own mask: the network is the same."""
    plain, read = (adapted(masked, process={"readout": readout}).model for readout in ("posterior", "context"))
    for one, other in zip(plain.network.parameters(), read.network.parameters(), strict=True):
        assert torch.equal(one, other)
    assert bound(read) < bound(plain) - 0.1
    one_mask = adapted(masked, process={"num_masks": 1, "readout": "context"}, conditioning="none").model
    assert bound(one_mask) == bound(multimdm.load(masked))


@pytest.mark.parametrize("mask_rows", ["copies", "noise", "tokens"])
def test_rows_of_new_masks(masked, mask_rows):
    start = multimdm.load(masked).network
    assert isinstance(start, DiT)
    old = start.vocab_embed.embedding.detach()
    scale = {} if mask_rows == "copies" else {"mask_scale": 0.4}
    job = adapted(masked, mask_rows=mask_rows, **scale)
    network, process = job.model.network, job.model.process
    assert isinstance(network, DiT)
    assert isinstance(process, MultiMask)
    copies = old[V:].expand(M, -1)
    expected = {
        "copies": copies,
        "noise": copies + noise_offsets(copies, 0.4, derive(0, "mask noise")),
        "tokens": copies + token_offsets(copies, old[:V], process.assignment, 0.4),
    }[mask_rows]
    torch.testing.assert_close(network.vocab_embed.embedding.detach()[V:], expected)
    assert torch.equal(network.vocab_embed.embedding.detach()[:V], old[:V])
    assert len(network.vocab_embed.embedding.detach()[V:].unique(dim=0)) == (1 if mask_rows == "copies" else M)
    control = adapted(masked, process={"num_masks": 1}, mask_rows=mask_rows, **scale).model.network
    assert isinstance(control, DiT)
    assert torch.equal(control.vocab_embed.embedding.detach(), old)


def test_the_usual_scale(masked):
    one, other = (adapted(masked, mask_rows="tokens", **scale).model.network for scale in ({}, {"mask_scale": 0.1}))
    assert torch.equal(one.get_parameter("vocab_embed.embedding"), other.get_parameter("vocab_embed.embedding"))
    with pytest.raises(ValueError, match=r"mask_scale is for mask_rows noise or tokens; got 0.3 with copies"):
        recipe(masked, mask_scale=0.3)


def test_masks_may_fade(masked, tmp_path):
    """By the schedule of the process; the checkpoint keeps it. One mask has nothing to fade, and LLaDA sees no time."""
    job = adapted(masked, mask_fade=True, mask_rows="tokens", process={"rho": 2.0}, train={"steps": 2})
    saved = train(job, tmp_path / "run", quiet=True).model
    network = multimdm.load(saved).network
    assert isinstance(network, DiT)
    assert network.config.mask_fade == 2.0
    control = adapted(masked, mask_fade=True, process={"num_masks": 1}).model.network
    assert isinstance(control, DiT)
    assert control.config.mask_fade is None
    with pytest.raises(ValueError, match="mask_fade must be left out for backbone llada"):
        recipe(masked, backbone="llada", conditioning="none", mask_fade=True)
    # What goes on from it keeps masks that fade, by the schedule of its own; noise that is kept would not fade.
    further = adapted(saved, process={"rho": 0.5}).model.network
    assert isinstance(further, DiT)
    assert further.config.mask_fade == 0.5
    student = distill_job(parse_recipe(tiny_distillation(saved), DistillRecipe, "test"), "student").model.network
    assert isinstance(student, DiT)
    assert student.config.mask_fade == 2.0
    for init, sections in ((masked, {"mask_fade": True}), (saved, {})):
        with pytest.raises(ValueError, match=r"process.alpha must be linear where masks fade .*got cosine"):
            adapted(init, process={"alpha": "cosine"}, **sections)
    tying = {"init": str(saved), "quantile": {"teacher": "tales"}, "train": TINY["train"], "log": TINY["log"]}
    with pytest.raises(ValueError, match="noise that is kept tells as much at all times: begin with a model of one"):
        couple_job(parse_recipe(tying, CoupleRecipe, "test"), "tied")


def test_runs_with_masks_that_fade_resume_and_are_shared(masked, tmp_path):
    """Bit for bit on one process; with shards of two ranks the same losses."""
    sections: dict[str, Any] = {
        "mask_fade": True,
        "mask_rows": "tokens",
        "mask_scale": 1.0,
        "dropout": 0.0,
        "train": {"steps": 4, "decay": "constant"},
        "log": {"checkpoint_every": 2, "validate_every": 0},
    }
    data = {"init": str(masked), "process": {"num_masks": M}, "train": TINY["train"], "log": TINY["log"]}
    for name, value in sections.items():
        data[name] = {**data[name], **value} if isinstance(value, dict) else value
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(data))
    train(adapted(masked, **sections), tmp_path / "alone", quiet=True)
    half = tmp_path / "alone" / "checkpoints" / "step-00000002"
    train(adapted(masked, **sections), tmp_path / "resumed", resume=str(half), quiet=True)
    assert weights(tmp_path / "resumed") == weights(tmp_path / "alone")
    finish(start(["adapt", str(file), "--out", str(tmp_path / "run"), "--train.strategy", "fsdp"], ranks=2))
    for one, other in zip(metrics(tmp_path / "run"), metrics(tmp_path / "alone"), strict=True):
        assert one == pytest.approx(other, rel=2e-4)
    plain = train(adapted(masked, **{**sections, "mask_fade": False}), tmp_path / "plain", quiet=True).model
    assert weights(plain.parent) != weights(tmp_path / "alone")
    with pytest.raises(ValueError, match="was made with mask_fade"):
        train(adapted(masked, **{**sections, "mask_fade": False}), tmp_path / "alone", quiet=True)


def test_the_identification_term_may_have_no_ramp_or_a_short_one(masked):
    none, short = (adapted(masked, **ramp).objective for ramp in ({}, {"identification": {"end": 0.05}}))
    assert isinstance(none, Elbo)
    assert isinstance(short, Elbo)
    assert none.ramp(0.0) == 1.0
    assert [short.ramp(progress) for progress in (0.0, 0.025, 0.05, 1.0)] == [0.0, 0.5, 1.0, 1.0]


def test_a_checkpoint_remembers_how_masks_are_read(masked, tmp_path):
    job = adapted(masked, process={"readout": "context"}, mask_rows="tokens", train={"steps": 3, "decay": "constant"})
    saved = train(job, tmp_path / "run", quiet=True).model
    model = multimdm.load(saved)
    assert isinstance(model.process, MultiMask)
    assert model.process.readout == "context"
    assert same_process(model.process, job.model.process)
    plain = adapted(masked).model.process
    assert not same_process(plain, model.process)
    assert model.lineage[-1]["recipe"]["process"]["readout"] == "context"
    model.save(tmp_path / "again")
    assert same_process(multimdm.load(tmp_path / "again").process, model.process)
    assert model.sample(num=2, length=48, steps=2, seed=0).nfe == 2

    settings = json.loads((saved / "config.json").read_text())
    assert settings["process"].pop("readout") == "context"
    (saved / "config.json").write_text(json.dumps(settings))
    assert same_process(multimdm.load(saved).process, plain), "checkpoints that do not say predict posteriors"


def test_what_follows_reads_masks_as_its_start_does(masked, tmp_path):
    for readout in ("context", "posterior"):
        adapted(masked, process={"readout": readout}).model.save(tmp_path / readout)
    data = tiny_distillation(tmp_path / "context", train={"steps": 3})
    job = distill_job(parse_recipe(data, DistillRecipe, "test"), "distilled")
    assert isinstance(job.model.process, MultiMask)
    assert job.model.process.readout == "context"
    train(job, tmp_path / "run", quiet=True)
    with pytest.raises(ValueError, match="teacher and init must have the same process"):
        distill_job(parse_recipe({**data, "teacher": str(tmp_path / "posterior")}, DistillRecipe, "test"), "distilled")


def test_tied_noise_is_read_by_the_network_itself(masked, tmp_path):
    adapted(masked, process={"readout": "context"}).model.save(tmp_path / "context")
    data = {
        "init": str(tmp_path / "context"),
        "quantile": {"teacher": "tales"},
        "train": TINY["train"],
        "log": TINY["log"],
    }
    process = couple_job(parse_recipe(data, CoupleRecipe, "test"), "coupled").model.process
    assert isinstance(process, MultiMask)
    assert (process.tied_noise, process.readout) == (True, "posterior")
    with pytest.raises(ValueError, match=r"process.readout must be posterior where noise is tied to the text"):
        parse_recipe({**data, "process": {"num_masks": M, "readout": "context"}}, CoupleRecipe, "test")
