"""What a step is said to take, against what it takes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from multimdm.models import DiT, DiTConfig, LLaDA, LLaDAConfig
from multimdm.models import head as heads
from multimdm.objectives import Batch, Distillation, Elbo, Relaxation, RelaxedElbo
from multimdm.process import MultiMask, Streams, Uniform
from multimdm.training.building import JOBS
from multimdm.training.counting import Memory, arithmetic, without_contents
from multimdm.training.estimate import activations, estimate
from multimdm.training.job import Job
from multimdm.training.outline import Outline, Start, Texts, outline, read_start
from multimdm.training.recipes import parse_recipe, read_recipe
from multimdm.training.schema import RECIPES
from multimdm.training.settings import TrainSettings
from multimdm.training.shipped import find_recipe
from support.runs import tiny, tiny_distillation, tiny_starts

SMALL = {"network": {"dropout": 0.0}}


@pytest.fixture(scope="module")
def starts(tmp_path_factory) -> dict[str, Path]:
    return tiny_starts(tmp_path_factory.mktemp("starts"))


def jobs(starts: dict[str, Path]) -> dict[str, tuple[Job, Outline]]:
    """Of every command: the job itself, and its outline."""
    named: dict[str, tuple[str, dict[str, Any]]] = {
        system: ("pretrain", tiny(system=system, **SMALL)) for system in ("mdlm", "multimdm", "duo", "candi", "ar")
    }
    adapted = {key: value for key, value in tiny().items() if key in ("data", "identification", "train", "log")}
    named["adapt"] = "adapt", {**adapted, "init": str(starts["mdlm"]), "process": {"num_masks": 7}}
    shared = {key: adapted[key] for key in ("data", "train", "log")}
    named["couple"] = "couple", {**shared, "init": str(starts["multimdm"]), "quantile": {"teacher": "tales"}}
    named["consistency"] = "distill", tiny_distillation(starts["multimdm"])
    named["gaussian"] = "distill", tiny_distillation(starts["duo"], consistency={"coupling": "gaussian"})
    named["sdtt"] = "distill", tiny_distillation(starts["mdlm"], sdtt={"delta": 0.125, "rounds": 3})
    found = {}
    for name, (command, data) in named.items():
        recipe = parse_recipe(data, RECIPES[command], name)
        job = JOBS[command](recipe, name)
        start = None if command == "pretrain" else read_start(data["init"])
        texts = Texts(job.source.tokenizer.vocab_size, job.source.length)
        found[name] = job, outline(recipe, texts, start)
    return found


@pytest.fixture(scope="module")
def both(starts) -> dict[str, tuple[Job, Outline]]:
    return jobs(starts)


NAMES = ("mdlm", "multimdm", "duo", "candi", "ar", "adapt", "couple", "consistency", "gaussian", "sdtt")


@pytest.mark.parametrize("name", NAMES)
def test_the_outline_is_the_network_that_would_be_trained(name, both):
    job, outlined = both[name]
    shapes = {key: tuple(x.shape) for key, x in job.model.network.state_dict().items()}
    assert {key: tuple(x.shape) for key, x in outlined.network.state_dict().items()} == shapes
    assert all(x.is_meta for x in outlined.network.parameters())
    assert type(outlined.process) is type(job.model.process)
    assert (outlined.teacher is None) == (job.teacher is None)


def batch_of(job: Job, size: int, noise: bool) -> Batch:
    ids = job.source.train(0, size).ids
    ends = torch.full_like(ids, job.source.tokenizer.vocab_size) if noise else None
    return Batch(ids, None, torch.full((size,), 0.999, dtype=torch.float64), Streams(range(size)), x_1=ends)


@pytest.mark.parametrize("name", NAMES)
def test_memory_and_arithmetic_are_those_of_a_real_step(name, both):
    """The same step on tensors with contents, almost all of whose positions are active; nothing is assumed there."""
    job, outlined = both[name]
    size, train = 4, replace(job.recipe.train, precision="float32")
    network, objective = job.model.network.train(), job.objective
    if isinstance(objective, Distillation):
        objective = objective.taught_by(job.teacher)
    for weight in network.parameters():
        weight.grad = torch.zeros_like(weight)
    batch = batch_of(job, size, name == "couple")
    estimated = estimate(outlined, replace(train, batch_size=size, micro_batch=None))
    objective(network, batch)  # tables that are made once and kept
    with heads.chunks_as_on_a_gpu(), Memory() as memory:
        memory.leave_out([*network.parameters(), *(x.grad for x in network.parameters() if x.grad is not None)])
        objective(network, batch).loss.backward()
    with arithmetic() as counter:  # by itself, since it takes operations apart
        objective(network, batch).loss.backward()
    assert estimated.memory["activations"] == pytest.approx(memory.peak, rel=0.3)
    # Of masks, half of the positions are assumed to be active, and here almost all of them are.
    expected = counter.get_total_flops()
    assert 0.6 * expected < estimated.flops < 1.1 * expected


def test_what_is_kept_for_the_backward_pass_is_most_of_the_activations():
    """Another count: by autograd's own hooks, of a network whose blocks are most of the work."""
    config = DiTConfig(
        vocab_size=50, num_masks=1, max_length=64, hidden_dim=64, num_blocks=8, num_heads=2, cond_dim=8, dropout=0.0
    )
    network, texts = DiT(config), Texts(50, 64)
    kept: dict[int, torch.UntypedStorage] = {}
    own = {x.untyped_storage()._cdata for x in network.parameters()}

    def pack(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        kept[storage._cdata] = storage
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        network.features(torch.zeros(4, 64, dtype=torch.long), torch.full((4,), 0.5)).sum()
    saved = sum(storage.nbytes() for key, storage in kept.items() if key not in own)
    process = MultiMask(50, 1)
    with torch.device("meta"):
        outlined = Outline(DiT(config), process, Elbo(process), None, texts)
    counted = activations(outlined, TrainSettings(precision="float32"), 4)
    assert saved < counted < 1.5 * saved


@pytest.mark.parametrize("name", ["gaussian", "relaxation"])
def test_tables_that_are_kept_have_contents(name, both):
    """An objective that was run without contents can still be run with them."""
    job, outlined = both["duo" if name == "relaxation" else name]
    if name == "relaxation":
        outlined = replace(outlined, objective=RelaxedElbo(Uniform(404), Relaxation(tau=0.0123)))
    estimate(outlined, replace(job.recipe.train, precision="float32"))
    objective = outlined.objective
    objective = objective.taught_by(job.teacher) if isinstance(objective, Distillation) else objective
    assert bool(objective(job.model.network, batch_of(job, 2, False)).loss.isfinite())


def test_parts_ranks_and_recomputation(both):
    _, outlined = both["multimdm"]
    train = TrainSettings(batch_size=64, precision="float32")
    one = estimate(outlined, train)
    parts = estimate(outlined, replace(train, micro_batch=8))
    assert one.micro_batch == 64
    assert parts.memory["activations"] < 0.3 * one.memory["activations"]
    assert (parts.flops, parts.tokens) == (one.flops, one.tokens) == (one.flops, 64 * 48)
    assert parts.memory["weights"] == one.memory["weights"] == 4 * one.parameters
    again = estimate(outlined, replace(train, recompute=True))
    assert again.memory["activations"] < one.memory["activations"]
    assert again.flops > one.flops
    ranks = estimate(outlined, replace(train, strategy="fsdp"), ranks=4)
    assert ranks.memory["optimiser"] == one.memory["optimiser"] // 4
    assert ranks.flops == one.flops
    averaged = estimate(outlined, replace(train, ema=0.0))
    assert "moving average" not in averaged.memory


def test_arithmetic_is_that_of_the_matrices():
    """Products of weights grow with the length, attention with its square; both as counted by hand."""
    d, blocks, V = 16, 2, 30
    config = DiTConfig(
        vocab_size=V,
        num_masks=0,
        max_length=64,
        hidden_dim=d,
        num_blocks=blocks,
        num_heads=2,
        cond_dim=8,
        dropout=0.0,
        conditioning="none",
    )
    with torch.device("meta"):
        network = DiT(config)
    train = TrainSettings(batch_size=1, precision="float32")

    def counted(length: int) -> float:
        job = Outline(network, Uniform(V), Elbo(Uniform(V)), None, Texts(V, length))
        return estimate(job, train).flops

    attention = blocks * (4 + 10) * 32**2 * d  # two products forward, five backward
    assert counted(64) - 2 * counted(32) == pytest.approx(2 * attention, rel=0.05)  # less what is done once
    matrices = 6 * 32 * (blocks * 12 * d * d + d * V)  # one product forward, two backward
    assert counted(32) - attention == pytest.approx(matrices, rel=0.05)


def test_the_count_of_memory_knows_what_is_freed():
    with Memory() as memory:
        x = torch.zeros(1000)
        y = x + 1
        del x
        z = y.view(10, 100)  # no memory of its own
        torch.zeros(250)
        assert memory.now == 4000
    assert memory.peak == 8000
    assert z.shape == (10, 100)


def test_what_is_assumed():
    with without_contents(0.5):
        mask = torch.zeros(4, 10, dtype=torch.bool)
        assert mask.nonzero().shape == (20, 2)
        assert torch.zeros(4, 10, 3)[mask].shape == (20, 3)
        assert int(torch.zeros(7, dtype=torch.long).sum()) == 1
        counts = torch.nn.functional.pad(torch.zeros(20, dtype=torch.bool).cumsum(0), (1, 0))
        assert [int(counts[place]) for place in (0, 5, 20)] == [0, 5, 20]
        assert float(torch.special.ndtri(torch.tensor(0.5))) == 0.0  # a constant is what it is


PAPER = {
    **{f"owt-{name}": "pretrain" for name in ("mdlm", "multimdm-rand", "duo", "candi")},
    **{f"lm1b-{name}": "pretrain" for name in ("mdlm", "multimdm-rand", "duo", "candi")},
    **{f"{corpus}-multimdm-cont": "adapt" for corpus in ("owt", "lm1b")},
    **{f"owt-distill-{name}": "distill" for name in ("gumbel", "gaussian", "sdtt")},
    "owt-quantile": "couple",
    "llada-8b-multimask": "adapt",
}


def test_no_recipe_of_the_papers_size_is_forgotten():
    sizes = ("owt-", "lm1b-", "llada-8b-")
    folders = {command: find_recipe(name).parent for name, command in PAPER.items()}
    shipped = {path.stem: command for command, folder in folders.items() for path in folder.glob("*.yaml")}
    assert {name: command for name, command in shipped.items() if name.startswith(sizes)} == PAPER


def paper_start(recipe: str, texts: Texts) -> Start:
    """The networks of the paper, without their weights."""
    if recipe.startswith("llada"):
        published = LLaDAConfig(
            vocab_size=126464,
            mask_rows=(126336,),
            num_rows=126464,
            hidden_dim=4096,
            num_blocks=32,
            num_heads=32,
            num_kv_heads=32,
            mlp_dim=12288,
            max_length=4096,
        )
        return Start(LLaDA(published, device="meta"), MultiMask(126464, 1))
    M = {"owt-distill-gaussian": 0, "owt-distill-gumbel": 50, "owt-distill-sdtt": 50}.get(recipe, 1)
    config = DiTConfig(
        vocab_size=texts.vocab_size,
        num_masks=M,
        max_length=texts.length,
        hidden_dim=768,
        num_blocks=12,
        num_heads=12,
        cond_dim=128,
        dropout=0.1,
        conditioning="none" if M == 1 else "sigma",
    )
    with torch.device("meta"):
        network = DiT(config)
    return Start(network, MultiMask(texts.vocab_size, M) if M else Uniform(texts.vocab_size))


@pytest.mark.unchecked  # thousands of operations without contents: with the checks, minutes
@pytest.mark.parametrize("name", PAPER)
def test_every_recipe_of_the_paper_fits_eight_gpus(name):
    recipe = read_recipe(find_recipe(name), RECIPES[PAPER[name]])
    texts = {"owt": Texts(50257, 1024), "lm1b": Texts(30522, 128), "llada": Texts(126346, 1024)}[name.split("-")[0]]
    start = None if PAPER[name] == "pretrain" else paper_start(name, texts)
    found = estimate(outline(recipe, texts, start), recipe.train, ranks=8)
    assert found.total < 70e9
    # 6 operations per parameter and token, fewer for the embedding and where half of the head is idle.
    if PAPER[name] == "pretrain":
        assert 2 < found.flops / (found.parameters * found.tokens) < 12
