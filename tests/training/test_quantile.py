"""Quantile noise in the loop: pairs of texts and noise keep their laws, runs resume, and nonsense is refused."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from multimdm import load
from multimdm.cli.main import main
from multimdm.data.cells import ROWS
from multimdm.data.options import PrepareOptions
from multimdm.data.prepared import PreparedData
from multimdm.data.preparing import prepare
from multimdm.evaluation.nelbo import NelboSums
from multimdm.evaluation.teachers import AutoregressiveTeacher, CausalLMTeacher, find_teacher
from multimdm.evaluation.teachers.base import cells_of_text
from multimdm.models import DiT
from multimdm.process import MultiMask
from multimdm.process.quantile import bucket_information, bucket_probability
from multimdm.samplers.advice import SamplingAdvice
from multimdm.training.building import distill_job, pretrain_job
from multimdm.training.couple_jobs import couple_job
from multimdm.training.engine import Engine
from multimdm.training.loop import Job, train
from multimdm.training.noise_strings import noise_seed
from multimdm.training.parts import Parts
from multimdm.training.quantile_pairs import FreshCells, QuantilePairs, WrittenPairs, quantile_pairs
from multimdm.training.recipes import parse_recipe
from multimdm.training.settings import CoupleRecipe, DataSettings, DistillRecipe, PretrainRecipe
from multimdm.training.sources import PreparedSource, open_source
from multimdm.training.stored_cells import StoredCells
from multimdm.training.validation import validation_sums
from support.runs import TINY, finish, metrics, start, tiny, tiny_distillation, tiny_starts, weights
from support.statistics import MUTANT, REJECT, chi_square_p
from support.tiny_judges import END, save_tiny_gpt2
from support.tiny_models import word_tokenizer

M = 8
EVERY_KIND = {"surest": 0.25, "drafts": 0.125, "prompts": 0.25}


def open_data(folder: Path, lines: int = 40, layout: str = "padded", length: int = 12) -> dict[str, Any]:
    """Lines of several lengths, by characters; and an autoregressive model of them with random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "text.txt"
    text.write_text("".join(f"{'ab ' * (n % 3 + 1)}{n % 7}{n % 5}\n" for n in range(lines)), encoding="utf-8")
    fraction = 8 / lines
    options: dict[str, Any] = {"sources": (str(text),), "tokenizer": "chars", "length": length, "layout": layout}
    prepare(PrepareOptions(**options, valid_fraction=fraction), folder / "data", False, lambda state: None)
    return {"kind": "prepared", "path": str(folder / "data")}


def save_random(data: dict[str, Any], system: str, folder: Path) -> Path:
    made = pretrain_job(parse_recipe(tiny(data=data, system=system, network={"dropout": 0.0}), PretrainRecipe, "test"), "x")
    torch.manual_seed(0)
    for parameter in made.model.network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    made.model.save(folder)
    return folder


@pytest.fixture(scope="module")
def starts(tmp_path_factory) -> dict[str, Path]:
    return tiny_starts(tmp_path_factory.mktemp("starts"))


@pytest.fixture(scope="module")
def places(tmp_path_factory, starts) -> dict[str, tuple[Path, dict[str, Any]]]:
    """An autoregressive model and its data, of each kind."""
    found: dict[str, tuple[Path, dict[str, Any]]] = {"tales": (starts["ar"], {"kind": "tales"})}
    for layout in ("padded", "packed"):
        folder = tmp_path_factory.mktemp(layout)
        data = open_data(folder, layout=layout)
        found[layout] = save_random(data, "ar", folder / "ar"), data
    return found


def recipe(init: Path, data: dict[str, Any], **sections: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "init": str(init),
        "data": data,
        "process": {"num_masks": M, "rho": 20.0},
        "matching": None,
        "quantile": {"size": 16, "reuse": 2},
        "train": {"steps": 6, "batch_size": 8, "learning_rate": 0.01, "warmup": 0, "decay": "constant", "ema": 0.9},
        "log": {**TINY["log"], "checkpoint_every": 2, "validate_every": 0},
    }
    for name, value in sections.items():
        made[name] = {**(made.get(name) or {}), **value} if isinstance(value, dict) else value
    return made


def job(place: tuple[Path, dict[str, Any]], **sections: Any) -> Job:
    return couple_job(parse_recipe(recipe(*place, **sections), CoupleRecipe, "test"), "run")


def pairs_of(built: Job, seed: int | None = None) -> QuantilePairs | WrittenPairs:
    """Of a job, as the loop has them."""
    assert built.quantiles is not None
    assert isinstance(built.model.process, MultiMask)
    engine = Engine(built.model.network, built.recipe.train)
    seed = noise_seed(built.recipe.train.seed, built.model.lineage) if seed is None else seed
    pairs = quantile_pairs(built.quantiles, engine, built.model.process, built.source, seed, lambda text: None)
    if pairs.due(0):
        pairs.refresh(0)
    return pairs


# --------------------------------------------------------------------- runs


@pytest.mark.parametrize("texts", ["data", "teacher"])
@pytest.mark.parametrize("kind", ["tales", "padded", "packed"])
def test_an_autoregressive_model_gets_quantile_noise(kind, texts, places, tmp_path):
    outcome = train(job(places[kind], quantile={"texts": texts}, **EVERY_KIND), tmp_path / "run", quiet=True)
    model = load(outcome.model)
    assert isinstance(model.process, MultiMask)
    assert (model.process.num_masks, model.process.tied_noise, model.process.noise_shown) == (M, True, True)
    assert isinstance(model.network, DiT)
    assert not model.network.config.causal
    assert model.advice == SamplingAdvice(order="confidence", temperature=0.0)
    assert [step["command"] for step in model.lineage] == ["couple"]
    for record in metrics(tmp_path / "run"):
        parts = 0.25 * record["draft"] + 0.25 * record["surest"] + 0.125 * record["rewrite"] + 0.375 * record["path"]
        assert record["loss"] == pytest.approx(parts, rel=1e-6)
    assert outcome.nelbo is not None
    assert outcome.nelbo.one_step
    assert outcome.nelbo.identification > 0
    assert metrics(tmp_path / "run", "valid")[-1]["one_step"] is True
    samples = model.sample(num=3, steps=2, seed=0)
    assert samples.nfe == 2
    assert torch.equal(samples.ids, model.sample(num=3, steps=2, seed=0, temperature=0.0, order="confidence").ids)


@pytest.mark.parametrize(
    ("kind", "sections"),
    [
        ("tales", {}),
        ("tales", {"quantile": {"texts": "teacher"}}),
        ("padded", {"quantile": {"order": "probable"}, **EVERY_KIND}),
    ],
    ids=str,
)
def test_a_run_that_was_stopped_goes_on_bit_for_bit(kind, sections, places, tmp_path):
    """Checkpoints at 2 and 4; what the teacher writes serves four steps, so that one of them falls within."""
    train(job(places[kind], **sections), tmp_path / "whole", quiet=True)
    for last in (2, 4):
        stopped = job(places[kind], **sections)
        stopped.objective = _Stopping(stopped.objective, last)
        with pytest.raises(_StopError):
            train(stopped, tmp_path / "run", quiet=True)
    train(job(places[kind], **sections), tmp_path / "run", quiet=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


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


def test_parts_of_a_batch_change_nothing(places, tmp_path):
    for name, size in (("whole", None), ("parts", 2)):
        train(job(places["padded"], train={"micro_batch": size}, **EVERY_KIND), tmp_path / name, quiet=True)
    for one, other in zip(metrics(tmp_path / "parts"), metrics(tmp_path / "whole"), strict=True):
        assert one == pytest.approx(other, rel=1e-3)


def test_two_ranks_share_the_work_and_learn_what_one_learns(tmp_path):
    """Three parts of cells, so that one rank has more to compute; every kind of state."""
    data = open_data(tmp_path / "corpus", lines=2 * ROWS + 30)
    init = save_random(data, "ar", tmp_path / "ar")
    sections: Any = {"train": {"steps": 3}, **EVERY_KIND}
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(recipe(init, data, **sections)))
    finish(start(["couple", str(file), "--out", str(tmp_path / "run")], ranks=2))
    (cells,) = (tmp_path / "corpus" / "data" / "train" / "cells").iterdir()
    together = {path.name: path.read_bytes() for path in cells.iterdir()}
    assert len(together) == 4
    for path in cells.iterdir():
        path.unlink()
    train(job((init, data), **sections), tmp_path / "alone", quiet=True)
    assert {path.name: path.read_bytes() for path in cells.iterdir()} == together
    assert [record["ranks"] for record in metrics(tmp_path / "run", "start")] == [2]
    for one, other in zip(metrics(tmp_path / "run"), metrics(tmp_path / "alone"), strict=True):
        assert one == pytest.approx(other, rel=1e-3), one


def test_the_command_line_names_the_teacher(starts, tmp_path, capsys):
    """As the message says that it can."""
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(recipe(starts["mdlm"], {"kind": "tales"}, train={"steps": 1})))
    arguments = ["couple", str(file), "--out", str(tmp_path / "run")]
    assert main(arguments) != 0
    assert "or name one: quantile.teacher (--quantile.teacher)" in capsys.readouterr().err.replace("\n", " ")
    assert main([*arguments, "--quantile.teacher", "tales"]) == 0
    assert load(tmp_path / "run" / "model").lineage[-1]["recipe"]["quantile"]["teacher"] == "tales"
