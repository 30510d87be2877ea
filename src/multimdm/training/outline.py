"""A job without its weights: what a recipe would build (`networks.py`), so that one can tell what it would take."""

import copy
from dataclasses import dataclass

import torch

from multimdm._checks import require
from multimdm.models import Backbone, DiT, DiTConfig, LLaDA, with_dropout
from multimdm.objectives import Distillation, Elbo, Objective, Tied
from multimdm.pipeline.hub import local_directory
from multimdm.pipeline.llada import base_model_config, is_adapter, is_llada
from multimdm.pipeline.settings import CheckpointSettings, build_process, read_file
from multimdm.process import AnyProcess, MultiMask, Process, Schedule
from multimdm.training.building import distillation_of, objective_of, settled
from multimdm.training.networks import (
    adapted_dit,
    adapted_llada,
    adapter_of,
    for_tied_noise,
    llada_mask_rows,
    new_dit,
    new_llada,
)
from multimdm.training.processes import process_of
from multimdm.training.schema import AdaptRecipe, CoupleRecipe, DistillRecipe, PretrainRecipe, TrainingRecipe
from multimdm.training.settings import ProcessChoice


@dataclass(frozen=True)
class Texts:
    """What a source tells of itself without its texts."""

    vocab_size: int
    length: int
    begin_at_zero: bool = False


@dataclass(frozen=True)
class Start:
    """A checkpoint without its weights."""

    network: Backbone
    process: AnyProcess | None


@dataclass(frozen=True)
class Outline:
    """Networks on the device "meta", where weights have shapes only."""

    network: Backbone
    process: AnyProcess | None
    objective: Objective | Distillation
    teacher: Backbone | None
    """Beside the network, in memory all the time."""
    texts: Texts


def read_start(init: str) -> Start:
    """The start, read from the small files of a checkpoint."""
    directory = local_directory(init)
    require(
        directory.is_dir(),
        f"init {init} is not here, so the size of its network is not known: make it first, or name another by --init",
    )
    if is_llada(directory):
        require(not is_adapter(directory), f"{init} is an adapter: dry runs begin with whole networks")
        config = base_model_config(directory)
        return Start(LLaDA(config, device="meta"), MultiMask(config.vocab_size, config.num_masks))
    settings = read_file(CheckpointSettings, directory / "config.json")
    process = None if settings.process is None else build_process(settings.process, None)
    return Start(_on_meta(settings.network), process)


def outline(recipe: TrainingRecipe, texts: Texts, start: Start | None) -> Outline:
    """Which token has which mask changes no cost, so the simplest assignment stands for all."""
    if isinstance(recipe, PretrainRecipe):
        return _pretrained(settled(recipe, texts.begin_at_zero), texts)
    assert start is not None
    if isinstance(recipe, AdaptRecipe):
        return _adapted(recipe, texts, start)
    if isinstance(recipe, DistillRecipe):
        return _distilled(recipe, texts, start)
    assert isinstance(recipe, CoupleRecipe)
    return _tied(recipe, texts, start)


def _pretrained(recipe: PretrainRecipe, texts: Texts) -> Outline:
    if recipe.network.architecture == "llada":
        network = new_llada(recipe, texts.vocab_size, texts.length, device="meta")
        process = _masks(recipe.process, network.config.num_masks, network.config.vocab_size)
    else:
        process = process_of(recipe, texts.vocab_size, lambda M: _masks(recipe.process, M, texts.vocab_size))
        network = new_dit(recipe, process, texts.vocab_size, texts.length, device="meta")
    return Outline(network, process, objective_of(recipe, process, texts.vocab_size), None, texts)


def _adapted(recipe: AdaptRecipe, texts: Texts, start: Start) -> Outline:
    network = start.network
    process = _masks(recipe.process, recipe.process.num_masks, network.config.vocab_size)
    if isinstance(network, LLaDA):
        rows = llada_mask_rows(network.config, recipe, texts.vocab_size)
        if recipe.lora.precision == "bfloat16":
            network = network.to(torch.bfloat16)
        network = adapted_llada(recipe, network, process, rows, adapter_of(recipe))
    else:
        network = adapted_dit(recipe, network, process)
    return Outline(network, process, Elbo(process, recipe.identification), None, texts)


def _distilled(recipe: DistillRecipe, texts: Texts, start: Start) -> Outline:
    if not isinstance(start.process, Process):
        raise ValueError(f"init must be a model of a discrete process; it has {start.process!r}")
    network = start.network
    if isinstance(network, DiT) and recipe.dropout is not None:
        network = with_dropout(network, recipe.dropout)
    objective = distillation_of(recipe, start.process)
    return Outline(network, start.process, objective, copy.deepcopy(start.network), texts)


def _tied(recipe: CoupleRecipe, texts: Texts, start: Start) -> Outline:
    network = for_tied_noise(recipe, start.network)
    choice = recipe.process or ProcessChoice()
    masks = _masks(choice, network.config.num_masks, network.config.vocab_size, tied_noise=True)
    process = masks.tied(recipe.noise_shown)
    return Outline(network, process, Tied(process, recipe.shares, recipe.weight), None, texts)


def _masks(choice: ProcessChoice, num_masks: int, vocab_size: int, tied_noise: bool = False) -> MultiMask:
    return MultiMask(vocab_size, num_masks, Schedule(choice.rho, choice.alpha), tied_noise=tied_noise)


def _on_meta(config: DiTConfig) -> DiT:
    with torch.device("meta"):
        return DiT(config)
