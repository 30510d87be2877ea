"""Quantile noise in the loop: pairs of texts and noise keep their laws, runs resume, and nonsense is refused."""

import dataclasses
import math
import signal
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
from multimdm.process.quantile import Cells, bucket_information, bucket_probability
from multimdm.samplers.advice import SamplingAdvice
from multimdm.training.building import pretrain_job
from multimdm.training.couple_jobs import couple_job
from multimdm.training.engine import Engine
from multimdm.training.job import Job
from multimdm.training.loop import train
from multimdm.training.outline import Texts, outline, read_start
from multimdm.training.quantile_pairs import FreshCells, QuantilePairs, WrittenPairs, quantile_pairs
from multimdm.training.recipes import parse_recipe
from multimdm.training.schema import CoupleRecipe, PretrainRecipe
from multimdm.training.settings import DataSettings
from multimdm.training.sources import PreparedSource, open_source
from multimdm.training.step_plan import Parts, stage_seed
from multimdm.training.stored_cells import StoredCells
from multimdm.training.validation import validation_sums
from support.runs import TINY, asking, finish, metrics, start, tiny, tiny_starts, weights
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
    made = pretrain_job(
        parse_recipe(tiny(data=data, system=system, network={"dropout": 0.0}), PretrainRecipe, "test"), "x"
    )
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
        "quantile": {"size": 16, "reuse": 2},
        "train": {"steps": 6, "batch_size": 8, "learning_rate": 0.01, "warmup": 0, "decay": "constant", "ema": 0.9},
        "log": {**TINY["log"], "checkpoint_every": 2, "validate_every": 0},
    }
    for name, value in sections.items():
        made[name] = {**(made.get(name) or {}), **value} if isinstance(value, dict) else value
    return made


def job(place: tuple[Path, dict[str, Any]], **sections: Any) -> Job:
    return couple_job(parse_recipe(recipe(*place, **sections), CoupleRecipe, "test"), "run")


def pairs_of(built: Job, seed: int | None = None, met: int | None = None) -> QuantilePairs | WrittenPairs:
    """Of a job, as the loop has them if it meets so many texts."""
    assert built.quantiles is not None
    assert isinstance(built.model.process, MultiMask)
    engine = Engine(built.model.network, built.recipe.train)
    seed = stage_seed(built.recipe.train.seed, built.model.lineage) if seed is None else seed
    pairs = quantile_pairs(built.quantiles, engine, built.model.process, built.source, seed, lambda text: None, met=met)
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
    assert model.cell_order is not None
    assert model.advice == SamplingAdvice(order="confidence", temperature=0.0, threshold="by_steps")
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
    """From step 2, in the middle of what the teacher wrote, which serves four."""
    train(job(places[kind], **sections), tmp_path / "whole", quiet=True)
    stopped = job(places[kind], **sections)
    stopped.objective = _Stopping(stopped.objective, last=2)
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
    pairs_of(job((init, data), **sections))
    assert {path.name: path.read_bytes() for path in cells.iterdir()} == together
    train(job((init, data), **sections), tmp_path / "alone", quiet=True)  # asks its teacher as the texts come
    assert [record["ranks"] for record in metrics(tmp_path / "run", "start")] == [2]
    for one, other in zip(metrics(tmp_path / "run"), metrics(tmp_path / "alone"), strict=True):
        assert one == pytest.approx(other, rel=1e-3), one


def test_ranks_that_share_the_network_wait_for_each_others_guesses(places, tmp_path):
    """With one sequence at a time, many parts have nothing to guess, and other ranks have some."""
    init, data = places["padded"]
    sections: Any = {"train": {"steps": 3, "micro_batch": 1, "strategy": "fsdp"}, **EVERY_KIND}
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(recipe(init, data, **sections)))
    finish(start(["couple", str(file), "--out", str(tmp_path / "run")], ranks=2))
    train(job((init, data), **sections), tmp_path / "alone", quiet=True)
    assert [record["ranks"] for record in metrics(tmp_path / "run", "start")] == [2]
    for one, other in zip(metrics(tmp_path / "run"), metrics(tmp_path / "alone"), strict=True):
        assert one == pytest.approx(other, rel=1e-3), one
    valid = [metrics(tmp_path / name, "valid")[-1] for name in ("run", "alone")]
    assert valid[0]["one_step"]
    assert valid[0]["nelbo"] == pytest.approx(valid[1]["nelbo"], rel=1e-3)


def test_there_may_be_more_buckets_than_tokens(places, tmp_path):
    """As with characters. A run, what continues it, and a dry run's outline."""
    init, data = places["padded"]
    many = {"num_masks": 40, "rho": 1000.0}
    built = job((init, data), process=many, train={"steps": 2})
    assert isinstance(built.model.process, MultiMask)
    assert built.model.process.num_masks > built.model.process.vocab_size
    saved = train(built, tmp_path / "run", quiet=True).model
    model = load(saved)
    assert isinstance(model.process, MultiMask)
    assert model.process.num_masks == 40
    assert model.sample(num=2, steps=2, seed=0).nfe == 2
    named = {"teacher": str(init)}
    for asked in (many, None):
        again = job((saved, data), process=asked, quantile=named, train={"steps": 2})
        assert isinstance(again.model.process, MultiMask)
        assert again.model.process.num_masks == 40
    outlined = outline(built.recipe, Texts(model.process.vocab_size, 12), read_start(str(init)))
    assert isinstance(outlined.process, MultiMask)
    assert outlined.process.num_masks == 40
    with pytest.raises(ValueError, match="num_masks must be at most vocab_size"):
        model.process.__class__(model.process.vocab_size, 40)


def test_the_command_line_names_the_teacher(starts, tmp_path, capsys):
    """As the message says that it can."""
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(recipe(starts["mdlm"], {"kind": "tales"}, train={"steps": 1})))
    arguments = ["couple", str(file), "--out", str(tmp_path / "run")]
    assert main(arguments) != 0
    assert "or name one: quantile.teacher (--quantile.teacher)" in capsys.readouterr().err.replace("\n", " ")
    assert main([*arguments, "--quantile.teacher", "tales"]) == 0
    assert load(tmp_path / "run" / "model").lineage[-1]["recipe"]["quantile"]["teacher"] == "tales"


# -------------------------------------------------------------------- pairs


def noise_from(pairs: QuantilePairs | WrittenPairs, first: int, num: int, built: Job) -> tuple[Tensor, Tensor]:
    """Texts and the buckets of their numbers."""
    example, noise = pairs.train(first, num)
    assert isinstance(built.model.process, MultiMask)
    return example.ids, noise - built.model.process.vocab_size


def uniform_p(index: Tensor) -> list[float]:
    """Of single buckets at some positions, and of all pairs of neighbours."""
    places = range(0, index.shape[1], 5)
    single = [chi_square_p(torch.bincount(index[:, i], minlength=M), torch.full((M,), 1 / M)) for i in places]
    pairs = torch.bincount((index[:, :-1] * M + index[:, 1:]).flatten(), minlength=M * M)
    return [*single, chi_square_p(pairs, torch.full((M * M,), 1 / M**2))]


def written_part(ids: Tensor, built: Job) -> Tensor:
    """All up to the end of the text; what follows is padding."""
    end = built.source.tokenizer.eos_id
    return torch.cat([torch.zeros_like(ids[:, :1]), (ids == end).cumsum(1)[:, :-1]], dim=1) == 0


@pytest.mark.parametrize("kind", ["padded", "packed"])
def test_noise_of_what_the_teacher_writes_is_uniform_and_draws_it(kind, places):
    built = job(places[kind], quantile={"texts": "teacher", "size": 2048, "reuse": 1})
    assert built.quantiles is not None
    pairs = pairs_of(built)
    ids, index = noise_from(pairs, 0, 2048, built)
    assert min(uniform_p(index)) > REJECT
    text = written_part(ids, built) if kind == "padded" else torch.ones_like(ids, dtype=torch.bool)
    own = cells_of_text(built.quantiles.teacher, ids, text, built.quantiles.order)
    assert bool((bucket_probability(own, index, M) > 0).all())
    assert not bool((bucket_probability(own, index.roll(1, dims=0), M) > 0).all())
    assert len(ids.unique(dim=0)) > 100
    if kind == "padded":
        assert bool((ids[~text] == built.source.tokenizer.pad_id).all())
        assert 0.1 < float(text.double().mean()) < 0.99


def test_noise_of_given_texts_is_uniform_if_they_are_the_teachers(places):
    """With the exact conditionals of Tales; a teacher that knows nothing of stories gives it away."""
    for teacher, fits in (("tales", True), (str(places["tales"][0]), False)):
        built = job(places["tales"], quantile={"teacher": teacher, "order": "id"})
        _, index = noise_from(pairs_of(built), 0, 768, built)
        p = uniform_p(index)
        assert min(p) > REJECT if fits else p[-1] < MUTANT


@pytest.mark.parametrize("kind", ["tales", "padded", "packed"])
def test_noise_of_given_texts_draws_them(kind, places):
    """Every text is with its own cells, through the shuffling of an epoch and over its end."""
    built = job(places[kind], quantile={"order": "probable"})
    assert built.quantiles is not None
    pairs, first = pairs_of(built), 10 if kind == "tales" else 20
    ids, index = noise_from(pairs, first, 24, built)
    source, text = built.source, torch.ones_like(ids, dtype=torch.bool)
    if isinstance(source, PreparedSource):
        valid = source.training[source.rows(first, 24).numpy()].valid
        assert not bool(valid.all()) or kind == "packed"
        text = source.drawn(valid)
    own = cells_of_text(built.quantiles.teacher, ids, text, built.quantiles.order)
    possible = bucket_probability(own, index, M) > 0
    assert bool(possible.all())
    assert not bool((bucket_probability(own, index.roll(1, dims=0), M) > 0).all())


@pytest.mark.parametrize("kind", ["padded", "packed"])
def test_what_packing_puts_around_sequences_is_not_drawn(kind, places):
    """BOS before all of them, and in packed sequences EOS behind; in padded ones the end is the text's own."""
    source = job(places[kind]).source
    assert isinstance(source, PreparedSource)
    example = source.training[:16]
    drawn, last = source.drawn(example.valid), example.valid.sum(1) - 1
    assert source.training.manifest.ends == "both"
    assert not bool((drawn & ~example.valid).any())
    given = example.valid & ~drawn
    expected = torch.zeros_like(given)
    expected[:, 0] = True
    if kind == "packed":
        expected[torch.arange(16), last] = True
    assert torch.equal(given, expected)
    assert bool(
        (example.ids[given] == source.tokenizer.bos_id).logical_or(example.ids[given] == source.tokenizer.eos_id).all()
    )


def test_numbers_are_those_of_the_text_whoever_asks(places):
    """Whatever part of the batch it is in; and blocks of cells are joined where they meet."""
    for built in (job(places["padded"]), job(places["padded"], quantile={"texts": "teacher"})):
        pairs = pairs_of(built)
        together = pairs.train(0, 16)
        parts = [pairs.train(start, 4) for start in range(0, 16, 4)]
        assert torch.equal(together[0].ids, torch.cat([example.ids for example, _ in parts]))
        assert torch.equal(together[1], torch.cat([noise for _, noise in parts]))
    built = job(places["padded"])
    assert built.quantiles is not None
    assert isinstance(built.source, PreparedSource)
    fresh = FreshCells(built.quantiles, built.source)
    found = fresh.of(250, built.source.train(250, 12))
    texts = built.source.training[built.source.rows(250, 12).numpy()]
    alone = cells_of_text(built.quantiles.teacher, texts.ids, built.source.drawn(texts.valid), built.quantiles.order)
    torch.testing.assert_close(found.lower, alone.lower, rtol=0, atol=1e-6)
    torch.testing.assert_close(found.width, alone.width, rtol=1e-4, atol=1e-9)


def test_numbers_are_new_in_every_epoch_and_stage(places):
    built = job(places["padded"])
    source, pairs = built.source, pairs_of(built)
    assert isinstance(source, PreparedSource)
    N, epochs = len(source.training), []
    for epoch in range(2):
        ids, index = noise_from(pairs, epoch * N, N, built)
        rows = source.rows(epoch * N, N)
        epochs.append((ids[rows.argsort()], index[rows.argsort()], index, source.training[rows.numpy()].valid))
    assert torch.equal(epochs[0][0], epochs[1][0])
    assert float((epochs[0][1] != epochs[1][1]).double().mean()) > 0.1  # cells are as narrow as buckets
    # Nor are the same numbers dealt out to other texts: under padding they can be seen.
    bare = ~epochs[0][3] & ~epochs[1][3]
    assert int(bare.sum()) > 20
    assert float((epochs[0][2] != epochs[1][2])[bare].double().mean()) > 0.6
    lineage = [{"command": "couple", "recipe": recipe(*places["padded"])}]
    seeds = [stage_seed(0, lineage[:stage]) for stage in range(2)]
    assert seeds[0] != seeds[1]
    for texts in ("data", "teacher"):
        staged = job(places["padded"], quantile={"texts": texts})
        one, again, other = (pairs_of(staged, seed).train(0, 16)[1] for seed in (seeds[0], seeds[0], seeds[1]))
        assert torch.equal(one, again)
        assert float((one != other).double().mean()) > 0.1


def test_written_texts_are_used_as_often_as_asked_for(places):
    built = job(places["padded"], quantile={"texts": "teacher"})
    pairs = pairs_of(built)  # 16 texts, used twice
    assert not pairs.due(31)
    assert pairs.due(32)
    first, second = pairs.train(8, 8), pairs.train(24, 8)
    assert torch.equal(first[0].ids, second[0].ids)
    assert torch.equal(first[1], second[1])
    pairs.refresh(32)
    assert not pairs.due(63)
    assert not torch.equal(pairs.train(40, 8)[1], first[1])
    assert bool(first[0].valid.all())


class _Rank:
    """One of two ranks in one process: what is summed is kept, to be added up by the test."""

    ranks, device = 2, torch.device("cpu")

    def __init__(self, rank: int) -> None:
        self.rank, self.is_main, self.summed = rank, rank == 0, torch.zeros(())

    def sum(self, x: Tensor) -> Tensor:
        self.summed = x
        return x


@pytest.mark.unchecked  # a rank is no Engine
def test_ranks_share_what_is_to_be_written(places):
    built = job(places["padded"], quantile={"texts": "teacher", "size": 160})
    assert built.quantiles is not None
    process: Any = built.model.process
    ranks: list[Any] = [_Rank(0), _Rank(1)]
    for rank in ranks:
        WrittenPairs(built.quantiles, rank, process, built.source, 0).refresh(0)
    alone = pairs_of(built, seed=0).train(0, 160)[0].ids
    assert torch.equal(ranks[0].summed + ranks[1].summed, alone)
    assert not bool(((ranks[0].summed != 0) & (ranks[1].summed != 0)).any())
    assert bool(ranks[1].summed.any())


# ------------------------------------------------------------- stored cells


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """How many texts teachers were asked for, call by call."""
    calls: list[int] = []
    plain = AutoregressiveTeacher.cells

    def cells(self: AutoregressiveTeacher, ids: Tensor, order: Any = "id") -> Cells:
        calls.append(len(ids))
        return plain(self, ids, order)

    monkeypatch.setattr(AutoregressiveTeacher, "cells", cells)
    return calls


def test_cells_are_computed_once(places, asked, tmp_path, monkeypatch):
    """For a teacher and an order; again if they are lost, and then the lost part alone."""
    monkeypatch.setattr("multimdm.data.cells.ROWS", 12)
    data = open_data(tmp_path / "corpus")
    init = save_random(data, "ar", tmp_path / "ar")
    said: list[str] = []

    def prepared(**sections: Any) -> tuple[StoredCells, Tensor]:
        built = job((init, data), **sections)
        assert built.quantiles is not None
        assert isinstance(built.source, PreparedSource)
        assert isinstance(built.model.process, MultiMask)
        engine = Engine(built.model.network, built.recipe.train)
        cells = StoredCells(
            built.quantiles.teacher,
            built.quantiles.settings.order,
            built.quantiles.order,
            built.source,
            engine,
            said.append,
        )
        pairs = QuantilePairs(cells, built.model.process, built.source, seed=0)
        if pairs.due(0):
            pairs.refresh(0)
        assert not pairs.due(0)
        return cells, pairs.train(0, 16)[1]

    cells, noise = prepared()
    assert asked == [12, 12, 8]
    assert said[0].startswith("cells of the texts, by teacher ar: 1/3 parts, 0:00:0")
    assert said[-1].startswith("cells of the texts, by teacher ar: 3/3 parts, 0:00:00 left")
    asked.clear()
    assert torch.equal(prepared()[1], noise)
    assert torch.equal(prepared(quantile={"size": 32}, train={"seed": 0})[1], noise)
    assert asked == []
    (cells.files.directory / "cells-00001.bin").write_bytes(b"cut off")
    assert torch.equal(prepared()[1], noise)
    assert asked == [12]
    other = prepared(quantile={"order": "id"})[0]
    assert asked == [12, 12, 12, 8]
    assert other.files.directory != cells.files.directory
    PreparedData.open(tmp_path / "corpus" / "data" / "train")  # is not bothered by what lies beside its tokens


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_a_teacher_is_not_asked_about_texts_that_the_run_does_not_meet(layout, asked, tmp_path, monkeypatch):
    """A short run on much text would else wait for hours before its first step. The noise is the same."""
    monkeypatch.setattr("multimdm.training.quantile_pairs._BLOCK", 8)
    data = open_data(tmp_path / "corpus", layout=layout)
    init = save_random(data, "ar", tmp_path / "ar")
    built = job((init, data), train={"steps": 2})
    assert isinstance(built.source, PreparedSource)
    whole = len(built.source.training)
    train(built, tmp_path / "run", quiet=True)
    assert asked[:2] == [8, 8]
    assert sum(asked) <= 16 + (built.source.valid_size or 0)
    cells = tmp_path / "corpus" / "data" / "train" / "cells"
    assert not cells.exists()
    once, again = pairs_of(built, met=whole), pairs_of(built, met=whole + 1)
    assert cells.exists()
    assert isinstance(once, QuantilePairs)
    assert isinstance(again, QuantilePairs)
    example = built.source.train(3, 16)
    for found, wanted in zip(once._cells.of(3, example), again._cells.of(3, example), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    assert torch.equal(once.train(3, 16)[0].ids, again.train(3, 16)[0].ids)
    assert float((once.train(3, 16)[1] == again.train(3, 16)[1]).double().mean()) > 0.99


def test_asked_to_stop_while_cells_are_computed(asked, tmp_path, monkeypatch, capsys):
    """The part at hand is finished and kept; the run ends as one that was never stopped."""
    monkeypatch.setattr("multimdm.data.cells.ROWS", 12)
    data = open_data(tmp_path / "corpus")
    init = save_random(data, "ar", tmp_path / "ar")
    plain = AutoregressiveTeacher.cells
    monkeypatch.setattr(AutoregressiveTeacher, "cells", asking(plain, signal.SIGTERM))
    with pytest.raises(SystemExit, match="143"):
        train(job((init, data)), tmp_path / "run", quiet=True)
    assert asked == [12]
    assert "run: saved 1 of 3 parts of the cells; the same command goes on" in capsys.readouterr().err
    assert metrics(tmp_path / "run") == []
    monkeypatch.setattr(AutoregressiveTeacher, "cells", plain)
    train(job((init, data)), tmp_path / "run", quiet=True)
    assert asked[:3] == [12, 12, 8]  # and then those of held-out text
    train(job((init, data)), tmp_path / "whole", quiet=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_a_text_that_cannot_be_drawn_stops_the_run_before_its_first_step(places, tmp_path):
    data = open_data(tmp_path / "corpus")
    init = save_random(data, "ar", tmp_path / "ar")
    mute = load(init)
    assert isinstance(mute.network, DiT)
    with torch.no_grad():
        mute.network.output_layer.linear.bias[mute.tokenizer.encode("a")[0]] = -1e5  # pyright: ignore[reportOptionalMemberAccess]
    mute.save(tmp_path / "mute")
    with pytest.raises(
        ValueError, match=r"teacher 'mute' gives the token at position \d+ of sequence \d+ probability 0"
    ):
        train(job((init, data), quantile={"teacher": str(tmp_path / "mute")}), tmp_path / "run", quiet=True)
    assert metrics(tmp_path / "run") == []


def test_without_data_the_teacher_writes_all_texts(places, tmp_path):
    nothing: dict[str, Any] = {"kind": "none", "length": 9}
    place = places["padded"][0], nothing
    with pytest.raises(ValueError, match=r"quantile\.order must be similar, id or probable"):
        job(place, quantile={"texts": "teacher"})
    written = job(place, quantile={"texts": "teacher", "order": "similar"})
    outcome = train(written, tmp_path / "run", quiet=True)
    assert outcome.nelbo is None
    assert load(outcome.model).sample(num=1, length=9, steps=1, seed=0).ids.shape == (1, 9)
    with pytest.raises(ValueError, match=r"data\.kind none needs quantile\.texts: teacher"):
        job((places["padded"][0], nothing))


# --------------------------------------------------------------- validation


def test_the_bound_counts_padding_as_training_does(places):
    """Nobody draws padding: what tokens say of their masks is that of the text, while the draft has to predict all."""
    built = job(places["padded"])
    process, quantiles = built.model.process, built.quantiles
    assert quantiles is not None
    assert isinstance(process, MultiMask)
    engine, size = Engine(built.model.network, built.recipe.train), built.source.valid_size
    assert size is not None
    with engine.evaluating():
        sums = NelboSums.none()
        for micro_batch in (4, 8):
            parts = Parts(8, micro_batch, 0, 1).of(size)
            times = torch.full((1, size), 0.5, dtype=torch.float64)
            again = validation_sums(engine, process, built.source, parts, times, quantiles)
            assert not sums.values.any() or torch.allclose(again.values, sums.values, rtol=1e-4)
            sums = again
    example, text = built.source.valid(0, size), built.source.valid_text(0, size)
    assert bool(example.valid.all())
    assert not bool(text.all())
    told = bucket_information(cells_of_text(quantiles.teacher, example.ids, text, quantiles.order), M).sum()
    assert float(sums.values[1]) == pytest.approx(float(told), rel=1e-4)
    everywhere = bucket_information(quantiles.teacher.cells(example.ids, quantiles.order), M).sum()
    assert abs(float(everywhere) - float(told)) > 1
    assert int(sums.values[5]) == example.ids.numel()


# ------------------------------------------------- causal language models


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gpt2")
    save_tiny_gpt2(folder / "gpt2", ["a", "b", "c", "d"])
    return folder / "gpt2"


def word_data(folder: Path, tokenizer: Path, layout: Any) -> dict[str, Any]:
    (folder / "words.txt").write_text("".join(f"a b {'c d ' * (n % 3)}a\n" for n in range(40)), encoding="utf-8")
    options: dict[str, Any] = {"sources": (str(folder / "words.txt"),), "tokenizer": str(tokenizer), "length": 10}
    prepare(PrepareOptions(**options, layout=layout, valid_fraction=0.2), folder / "data", False, lambda state: None)
    return {"kind": "prepared", "path": str(folder / "data")}


@pytest.mark.parametrize("texts", ["data", "teacher"])
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_a_causal_language_model_is_the_teacher_of_a_masked_one(layout, texts, gpt2, tmp_path):
    """Its end of text stands before texts, too: what it writes is framed as the data are."""
    data = word_data(tmp_path, gpt2, layout)
    init = save_random(data, "mdlm", tmp_path / "mdlm")
    built = job(
        (init, data),
        process={"num_masks": 4},
        quantile={"teacher": str(gpt2), "texts": texts},
        train={"steps": 2},
        noise_shown=texts == "data",
    )
    assert built.quantiles is not None
    assert isinstance(built.quantiles.teacher, CausalLMTeacher)
    end = built.source.tokenizer.eos_id
    assert end == built.source.begins_with == 4
    ids = pairs_of(built).train(0, 16)[0].ids
    assert bool((ids[:, 0] == end).all())
    if layout == "padded":
        behind = (ids[:, 1:] == end).cumsum(1) - (ids[:, 1:] == end).long() > 0
        assert bool((ids[:, 1:][behind] == (built.source.tokenizer.pad_id or end)).all())
    assert bool(((ids[:, 1:] != end) & (ids[:, 1:] != built.source.tokenizer.pad_id)).any())
    outcome = train(built, tmp_path / "run", quiet=True)
    assert all(math.isfinite(record["loss"]) for record in metrics(tmp_path / "run"))
    assert load(outcome.model).advice == SamplingAdvice(order="confidence", temperature=0.0, threshold="by_steps")


def test_what_was_written_ends_where_it_says(gpt2, tmp_path):
    """BOS is no end of text, even if it is the same token; what follows the end is padding."""
    source = open_source(DataSettings(**word_data(tmp_path, gpt2, "padded")), seed=0)
    pad = source.train(0, 1).ids[0, -1]
    assert source.ended(torch.tensor([[4, 0, 4, 1, 2, 4], [4, 4, 1, 1, 1, 1], [4, 0, 1, 2, 3, 0]])).tolist() == [
        [4, 0, 4, pad, pad, pad],
        [4, 4, pad, pad, pad, pad],
        [4, 0, 1, 2, 3, 0],
    ]
    (tmp_path / "packed").mkdir()
    packed = open_source(DataSettings(**word_data(tmp_path / "packed", gpt2, "packed")), seed=0)
    stream = torch.tensor([[4, 0, 4, 1, 2, 4]])
    assert torch.equal(packed.ended(stream), stream)


def test_texts_that_begin_with_nothing_are_written_so(gpt2):
    tokens = word_tokenizer(["a", "b", "c", "d"], end=END, pad="[UNK]")
    teacher = find_teacher(str(gpt2), tokens, 4, torch.device("cpu"))
    u = torch.rand((64, 4), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert not bool((teacher.write(u)[:, 0] == 4).all())


# ------------------------------------------------------------------- masks


def rows_of(built: Job) -> Tensor:
    assert isinstance(built.model.network, DiT)
    return built.model.network.vocab_embed.embedding.detach()


def test_masks_begin_with_codes_and_keep_them_in_later_stages(places, tmp_path):
    plain, coded = (rows_of(job(places["padded"], mask_codes=scale)) for scale in (0.0, 1.0))
    V = plain.shape[0] - 2 * M
    assert len(plain[V:].unique(dim=0)) == 2  # copies of the start symbol, and zeros
    assert len(coded[V:].unique(dim=0)) == 2 * M
    assert torch.equal(plain[:V], coded[:V])
    init = load(places["padded"][0]).network
    assert isinstance(init, DiT)
    assert torch.equal(plain[V : V + M], init.vocab_embed.embedding.detach()[V:].expand(M, -1))
    first = train(job(places["padded"], train={"steps": 1}), tmp_path / "run", quiet=True).model
    learnt = load(first).network
    assert isinstance(learnt, DiT)
    for process in ({"num_masks": M, "rho": 3.0}, None):
        second = job((first, places["padded"][1]), process=process, quantile={"teacher": str(places["padded"][0])})
        assert torch.equal(rows_of(second), learnt.vocab_embed.embedding.detach())


def test_the_recipes_own_advice_is_kept(places):
    built = job(places["padded"], advice={"order": "rewrite", "temperature": 0.5})
    assert built.model.advice == SamplingAdvice(order="rewrite", temperature=0.5)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("system", "sections", "message"),
    [
        ("ar", {"drafts": 0.1, "noise_shown": False}, "drafts needs noise_shown: true"),
        ("ar", {"at_one": 0.5, "surest": 0.3, "drafts": 0.3}, "must not exceed 1 together"),
        ("ar", {"process": {"num_masks": 1}}, r"process\.num_masks must be at least 2: .* has one mask"),
        ("ar", {"process": None}, r"process\.num_masks must be at least 2"),
        ("ar", {"quantile": {"texts": "teacher", "size": 12}}, r"quantile\.size must be a multiple of .*, 8; got 12"),
        ("ar", {"quantile": {"order": "best"}}, r"quantile\.order"),
        ("ar", {"quantile": {"teachers": "tales"}}, r"did you mean 'quantile\.teacher'"),
        (
            "ar",
            {"quantile": {"teacher": "./no/where"}},
            r"^teacher '\./no/where' cannot be found[^;]*; it can be[^;]*$",
        ),
        ("mdlm", {}, r"must be autoregressive .*; or name one: quantile\.teacher \(--quantile\.teacher\)"),
        ("multimdm", {"process": None}, r"must be autoregressive .*; or name one: quantile\.teacher"),
        (
            "duo",
            {"quantile": {"teacher": "tales"}},
            "init must be an autoregressive, masked or multi-mask model; .* has Uniform",
        ),
        ("ar", {"advice": {"order": "backwards"}}, "order"),
    ],
    ids=str,
)
def test_recipes_that_make_no_sense(system, sections, message, starts):
    with pytest.raises(ValueError, match=message):
        job((starts[system], {"kind": "tales"}), **sections)


def test_a_teacher_writes_no_texts_of_unknown_length(places):
    ar, data = places["padded"]
    hidden = {**data, "learn_padding": False}
    with pytest.raises(ValueError, match=r"quantile\.texts: teacher needs a model that learns where texts end"):
        job((ar, hidden), quantile={"texts": "teacher"})
    job((ar, hidden))
    with pytest.raises(ValueError, match="teacher 'tales' is for stories of Tales"):
        job((ar, data), quantile={"teacher": "tales"})
