"""LLaDA in training: the adapter learns, the base does not, and runs go on, on one rank or several."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

import multimdm
from multimdm.cli.main import main
from multimdm.models import LLaDA
from multimdm.objectives import Elbo
from multimdm.pipeline.settings import same_process
from multimdm.process import MultiMask
from multimdm.training.building import adapt_job, distill_job, pretrain_job
from multimdm.training.checkpoints import open_checkpoint
from multimdm.training.couple_jobs import couple_job
from multimdm.training.loop import train
from multimdm.training.recipes import parse_recipe
from multimdm.training.schema import AdaptRecipe, CoupleRecipe, DistillRecipe, PretrainRecipe
from support.addition import write_recipes
from support.runs import finish, metrics, start, tiny
from support.tiny_llada import chat_tokenizer, files_hash, masks_of, tiny_llada, write_llada

M = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Data, and a tiny base that has learnt for two steps."""
    out = tmp_path_factory.mktemp("llada")
    recipes = write_recipes(out, 1, 2, 6, M)
    for arguments in (recipes.prepare, recipes.pretrain):
        assert main(arguments) == 0
    return out


def recipe(folder: Path, **sections: Any) -> dict[str, Any]:
    data = yaml.safe_load((folder / "adapted.yaml").read_text())
    data["train"] |= {"batch_size": 8, "steps": 6, "warmup": 0}
    data["log"] |= {"every": 1, "checkpoint_every": 3, "validation_sequences": 8}
    for name, value in sections.items():
        data[name] = {**data.get(name, {}), **value} if isinstance(value, dict) else value
    return data


def adapt(folder: Path, out: Path, **sections: Any) -> multimdm.Model:
    job = adapt_job(parse_recipe(recipe(folder, **sections), AdaptRecipe, "here"), "adapted")
    train(job, out, quiet=True)
    return multimdm.load(out / "model")


def test_a_tiny_llada_from_random_weights(folder):
    model = multimdm.load(folder / "base" / "model")
    assert isinstance(model.network, LLaDA)
    config = model.network.config
    assert config.vocab_size == 64
    assert config.mask_rows == (16,)  # behind the sixteen characters
    published = json.loads((folder / "base" / "model" / "config.json").read_text())
    assert (published["model_type"], published["mask_token_id"]) == ("llada", 16)


@pytest.mark.parametrize("rows", ["reserved", "appended"])
def test_only_an_adapter_comes_out_and_the_base_stays(folder, tmp_path, rows):
    base = folder / "base" / "model"
    before = files_hash(base)
    model = adapt(folder, tmp_path / "run", lora={"rows": rows, "rank": 2})
    assert files_hash(base) == before
    names = {path.name for path in (tmp_path / "run" / "model").iterdir()}
    assert {"masks.json", "adapter_model.safetensors", "adapter_config.json"} <= names
    assert "model.safetensors" not in names
    assert model.process is not None
    assert model.process.num_masks == M
    assert isinstance(model.network, LLaDA)
    assert model.network.adapter is not None
    assert model.network.adapter.rank == 2
    first = 17 if rows == "reserved" else 64
    assert model.network.config.mask_rows == (16, first, first + 1, first + 2)
    assert [step["command"] for step in model.lineage] == ["pretrain", "adapt"]
    losses = [record["loss"] for record in metrics(tmp_path / "run")]
    assert len(losses) == 6


def test_own_masks_may_be_read_by_bayes_rule_and_rows_be_like_their_tokens(folder, tmp_path):
    sections = {"process": {"readout": "context"}, "mask_rows": "tokens", "mask_scale": 0.5}
    job = adapt_job(parse_recipe(recipe(folder, **sections), AdaptRecipe, "here"), "adapted")
    assert isinstance(job.model.network, LLaDA)
    rows = job.model.network.wte(torch.tensor(job.model.network.config.mask_rows)).detach()
    base = multimdm.load(folder / "base" / "model").network
    assert isinstance(base, LLaDA)
    old = base.wte.weight.detach()[base.config.mask_rows[0]]
    assert len(rows.unique(dim=0)) == M
    size = (rows - old).square().mean().sqrt() / old.square().mean().sqrt()
    assert float(size) == pytest.approx(0.5, rel=1e-5)
    model = adapt(folder, tmp_path / "run", train={"steps": 2}, **sections)
    assert isinstance(model.process, MultiMask)
    assert model.process.readout == "context"
    again = tmp_path / "again"
    model.save(again)
    assert same_process(multimdm.load(again).process, model.process)
    assert json.loads((again / "masks.json").read_text())["readout"] == "context"
    assert model.sample(num=2, length=8, steps=2, seed=0).nfe == 2


def test_a_stopped_run_goes_on_bit_for_bit(folder, tmp_path):
    adapt(folder, tmp_path / "whole")
    halves = tmp_path / "halves"
    shutil.copytree(tmp_path / "whole" / "checkpoints" / "step-00000003", halves / "checkpoints" / "step-00000003")
    state = load_file(halves / "checkpoints" / "step-00000003" / "training.safetensors")
    assert not any("base_layer" in name for name in state)  # the frozen weights are not saved
    adapt(folder, halves)
    one, other = (load_file(run / "model" / "adapter_model.safetensors") for run in (tmp_path / "whole", halves))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_bfloat16_base_learns_in_float32(folder, tmp_path):
    adapt(folder, tmp_path / "run", lora={"precision": "bfloat16"}, train={"steps": 2})
    learnt = load_file(tmp_path / "run" / "model" / "adapter_model.safetensors")
    assert {x.dtype for x in learnt.values()} == {torch.float32}


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_ranks_learn_what_one_does(folder, tmp_path, strategy):
    sections = recipe(folder, train={"steps": 2, "strategy": strategy})
    file = tmp_path / "adapted.yaml"
    file.write_text(yaml.safe_dump(sections))
    finish(start(["adapt", str(file), "--out", str(tmp_path / "two")], ranks=2))
    adapt(folder, tmp_path / "one", train={"steps": 2})
    for ours, theirs in zip(metrics(tmp_path / "one"), metrics(tmp_path / "two"), strict=True):
        assert theirs["loss"] == pytest.approx(ours["loss"], rel=1e-4)
    one, two = (load_file(tmp_path / run / "model" / "adapter_model.safetensors") for run in ("one", "two"))
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, atol=2e-3, rtol=2e-2)


def test_four_ranks_with_shards_recomputation_and_bfloat16(folder, tmp_path):
    """As the recipe of the 8B model has it: a base in bfloat16 that is spread over ranks, an adapter in float32."""
    how = {"steps": 2, "batch_size": 8, "precision": "bfloat16", "recompute": True, "strategy": "fsdp"}
    sections = recipe(folder, lora={"precision": "bfloat16"}, train=how, log={"checkpoint_every": 1})
    file = tmp_path / "adapted.yaml"
    file.write_text(yaml.safe_dump(sections))
    finish(start(["adapt", str(file), "--out", str(tmp_path / "four")], ranks=4))
    adapt(folder, tmp_path / "one", lora={"precision": "bfloat16"}, train=how)
    for ours, theirs in zip(metrics(tmp_path / "one"), metrics(tmp_path / "four"), strict=True):
        assert theirs["loss"] == pytest.approx(ours["loss"], rel=0.02)
    learnt = load_file(tmp_path / "four" / "model" / "adapter_model.safetensors")
    assert {x.dtype for x in learnt.values()} == {torch.float32}
    checkpoint = tmp_path / "four" / "checkpoints" / "step-00000002"
    assert len(list((checkpoint / "training").iterdir())) == 4
    kept, trained = open_checkpoint(checkpoint).tensors(), sum(x.numel() for x in learnt.values())
    assert sum(x.numel() for name, x in kept.items() if name.startswith("weights.")) == trained, "the base is not kept"


def test_an_adapted_model_is_distilled(folder, tmp_path):
    adapt(folder, tmp_path / "adapted", train={"steps": 2})
    data = {
        "init": str(tmp_path / "adapted" / "model"),
        "data": recipe(folder)["data"],
        "consistency": {"rounds": 1, "delta": 0.25},
        "train": {"steps": 2, "batch_size": 4, "warmup": 0, "learning_rate": 1e-3},
        "log": recipe(folder)["log"],
    }
    job = distill_job(parse_recipe(data, DistillRecipe, "here"), "distilled")
    assert job.teacher is not None
    assert job.teacher is not job.model.network
    frozen = "blocks.0.q_proj.base_layer.weight"
    assert job.teacher.get_parameter(frozen) is job.model.network.get_parameter(frozen)  # one copy for both
    train(job, tmp_path / "distilled", quiet=True)
    before, after = (
        load_file(tmp_path / run / "model" / "adapter_model.safetensors") for run in ("adapted", "distilled")
    )
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert masks_of(multimdm.load(tmp_path / "distilled" / "model")).num_masks == M


def test_bad_input_comes_before_weights(folder, tmp_path, monkeypatch):
    def job(**sections: Any) -> None:
        adapt_job(parse_recipe(recipe(folder, **sections), AdaptRecipe, "here"), "adapted")

    monkeypatch.setattr(multimdm, "load", lambda *_, **__: pytest.fail("weights are read"))
    with pytest.raises(ValueError, match=r"num_masks must be at most 48, .*; got 60: append rows instead"):
        job(process={"num_masks": 60})
    with pytest.raises(ValueError, match=r"mask ids must not be tokens of the data; \[5, 6\] are"):
        job(lora={"spare": [5, 6, 20]})
    other = write_llada(tmp_path / "other", tiny_llada(vocab_size=10, num_rows=10, mask_rows=(9,)))
    with pytest.raises(ValueError, match=r"init and data must have the same vocabulary; .* has 10 ids, the data 16"):
        job(init=str(other))
    stranger = write_llada(tmp_path / "stranger", tiny_llada(), chat_tokenizer())
    with pytest.raises(ValueError, match=r"init and data must have the same tokenizer"):
        job(init=str(stranger))
    short = write_llada(tmp_path / "short", tiny_llada(max_length=4))
    with pytest.raises(ValueError, match=r"sequences of 8 tokens; .* is made for 4 at most"):
        job(init=str(short))
    many = write_llada(tmp_path / "many", tiny_llada())
    masks = json.loads((folder / "base" / "model" / "masks.json").read_text())
    (many / "masks.json").write_text(json.dumps({**masks, "vocab_size": 40, "mask_ids": [36, 37], "lineage": []}))
    with pytest.raises(ValueError, match="init must have one mask"):
        job(init=str(many))


def test_recipes_that_make_no_sense(folder):
    with pytest.raises(ValueError, match=r"conditioning must be none for backbone llada; got 'sigma'"):
        parse_recipe(recipe(folder, conditioning="sigma"), AdaptRecipe, "here")
    with pytest.raises(ValueError, match=r"lora is for backbone llada"):
        parse_recipe(recipe(folder, backbone="dit", lora={"rank": 3}), AdaptRecipe, "here")
    with pytest.raises(ValueError, match=r"is a LLaDA network: adapt it with backbone: llada"):
        adapt_job(parse_recipe(recipe(folder, backbone="dit"), AdaptRecipe, "here"), "x")
    base = yaml.safe_load((folder / "base.yaml").read_text())
    with pytest.raises(ValueError, match=r"dropout must be 0.0 for architecture llada; got 0.1"):
        parse_recipe({**base, "network": {"architecture": "llada"}}, PretrainRecipe, "here")
    with pytest.raises(ValueError, match=r"architecture llada is for masked systems; the system is duo"):
        parse_recipe({**base, "system": "duo"}, PretrainRecipe, "here")


def test_a_multi_llada_is_coupled(folder, tmp_path):
    """Its network is not shown the noise: x_1 tells at its own position only."""
    adapt(folder, tmp_path / "adapted")
    data = recipe(folder)
    tied = {name: data[name] for name in ("data", "train", "log")}
    tied |= {"init": str(tmp_path / "adapted" / "model"), "conditioning": "none", "noise_shown": False}
    made = pretrain_job(parse_recipe(tiny(data=data["data"], system="ar"), PretrainRecipe, "here"), "teacher")
    made.model.save(tmp_path / "teacher")
    tied["quantile"] = {"teacher": str(tmp_path / "teacher")}
    outcome = train(couple_job(parse_recipe(tied, CoupleRecipe, "here"), "tied"), tmp_path / "tied", quiet=True)
    model = multimdm.load(outcome.model)
    assert isinstance(model.network, LLaDA)
    assert isinstance(model.process, MultiMask)
    assert model.process.tied_noise
    assert model.cell_order is not None
    assert model.sample(num=2, steps=2, seed=0).nfe == 2


def test_mistakes_in_contexts_are_tokens_of_the_data(folder):
    """Never ids in reserve, on which the masks lie."""
    data = recipe(folder, context={"by": "uniform", "share": 0.2})
    job = adapt_job(parse_recipe(data, AdaptRecipe, "here"), "adapted")
    assert isinstance(job.objective, Elbo)
    assert job.objective.context is not None
    law = job.objective.context.law
    assert law is not None
    assert isinstance(job.model.network, LLaDA)
    assert len(law) == job.model.network.config.vocab_size
    assert law[list(job.model.network.config.mask_rows)].tolist() == [0.0] * M
    assert law.nonzero().flatten().tolist() == list(range(job.source.tokenizer.vocab_size))
