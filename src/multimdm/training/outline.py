"""A job without its weights: what a recipe would build, for who wants to know what it takes."""

import copy
from dataclasses import dataclass

import torch

from multimdm._checks import require
from multimdm._files import read_json
from multimdm.models import Backbone, DiT, DiTConfig, LLaDA
from multimdm.models.expand import expand_masks, gate_time, look_both_ways, show_noise, with_dropout
from multimdm.models.llada_adapter import Adapter
from multimdm.models.llada_masks import expand_llada
from multimdm.models.lora import attach
from multimdm.objectives import Coupled, Distillation, Elbo, Objective
from multimdm.pipeline.hub import local_directory
from multimdm.pipeline.llada import base_model_config, is_adapter, is_llada
from multimdm.pipeline.settings import build_process, parse
from multimdm.process import AnyProcess, MultiMask, Process, Schedule
from multimdm.training.building import distillation_of, dit_config, objective_of, process_of, settled
from multimdm.training.llada_jobs import llada_config, mask_rows
from multimdm.training.settings import (
    AdaptRecipe,
    CoupleRecipe,
    DistillRecipe,
    PretrainRecipe,
    ProcessChoice,
    TrainingRecipe,
)


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
    """From the small files of a checkpoint."""
    directory = local_directory(init)
    require(
        directory.is_dir(),
        f"init {init} is not here, so the size of its network is not known: make it first, or name another by --init",
    )
    if is_llada(directory):
        require(not is_adapter(directory), f"{init} is an adapter: dry runs begin with whole networks")
        config = base_model_config(directory)
        return Start(LLaDA(config, device="meta"), MultiMask(config.vocab_size, config.num_masks))
    settings = parse(read_json(directory / "config.json"), str(directory / "config.json"))
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
    return _coupled(recipe, texts, start)


def _pretrained(recipe: PretrainRecipe, texts: Texts) -> Outline:
    if recipe.network.architecture == "llada":
        num_masks = recipe.process.num_masks if recipe.system == "multimdm" else 1
        config = llada_config(recipe, num_masks, texts.vocab_size, texts.length)
        process = _masks(recipe.process, num_masks, config.vocab_size)
        return Outline(LLaDA(config, device="meta"), process, objective_of(recipe, process, 0), None, texts)
    process = process_of(recipe, texts.vocab_size, lambda M: _masks(recipe.process, M, texts.vocab_size))
    config = dit_config(recipe, process, texts.vocab_size, texts.length)
    return Outline(_on_meta(config), process, objective_of(recipe, process, texts.vocab_size), None, texts)


def _adapted(recipe: AdaptRecipe, texts: Texts, start: Start) -> Outline:
    M, network = recipe.process.num_masks, start.network
    if isinstance(network, LLaDA):
        rows = mask_rows(network.config, recipe, texts.vocab_size)
        adapter = Adapter(recipe.lora.rank, recipe.lora.alpha, recipe.lora.dropout, base="", base_digest="")
        if recipe.lora.precision == "bfloat16":
            network = network.to(torch.bfloat16)
        network = attach(expand_llada(network, rows), adapter)
    else:
        network = expand_masks(network, M) if network.config.num_masks == 1 else network
        network = _conditioned(network, recipe.conditioning, recipe.dropout)
    process = _masks(recipe.process, M, network.config.vocab_size)
    return Outline(network, process, Elbo(process, recipe.identification), None, texts)


def _distilled(recipe: DistillRecipe, texts: Texts, start: Start) -> Outline:
    require(isinstance(start.process, Process), f"init must be a model of a discrete process; it has {start.process!r}")
    assert isinstance(start.process, Process)
    network = start.network
    if isinstance(network, DiT) and recipe.dropout is not None:
        network = with_dropout(network, recipe.dropout)
    objective = distillation_of(recipe, start.process)
    return Outline(network, start.process, objective, copy.deepcopy(start.network), texts)


def _coupled(recipe: CoupleRecipe, texts: Texts, start: Start) -> Outline:
    network = start.network
    M = network.config.num_masks
    if isinstance(network, DiT):
        network = look_both_ways(network) if network.config.causal else network
        if M == 1 and recipe.process is not None:
            M = recipe.process.num_masks
            network = expand_masks(network, M)
        network = show_noise(network) if recipe.noise_shown else network
        network = _conditioned(network, recipe.conditioning, recipe.dropout)
    process = _masks(recipe.process or ProcessChoice(), M, network.config.vocab_size).tied(recipe.noise_shown)
    return Outline(network, process, Coupled(process, recipe.shares, recipe.weight), None, texts)


def _conditioned(network: DiT, conditioning: str, dropout: float | None) -> DiT:
    if conditioning == "sigma" or conditioning == "time":
        network = gate_time(network, conditioning)
    return network if dropout is None else with_dropout(network, dropout)


def _masks(choice: ProcessChoice, num_masks: int, vocab_size: int) -> MultiMask:
    return MultiMask(vocab_size, num_masks, Schedule(choice.rho, choice.alpha))


def _on_meta(config: DiTConfig) -> DiT:
    with torch.device("meta"):
        return DiT(config)
