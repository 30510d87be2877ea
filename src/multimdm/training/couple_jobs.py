"""From a recipe of `multimdm couple` to a job: a checkpoint that is to learn from quantile noise."""

from dataclasses import replace

import torch

import multimdm
from multimdm._checks import require
from multimdm.models import (
    Backbone,
    DiT,
    code_masks,
    expand_masks,
    gate_time,
    look_both_ways,
    show_noise,
    with_dropout,
)
from multimdm.objectives import Coupled
from multimdm.pipeline import Model
from multimdm.process import MultiMask
from multimdm.samplers.advice import SamplingAdvice
from multimdm.training.loop import Job
from multimdm.training.processes import multi_mask
from multimdm.training.quantile_jobs import open_quantiles
from multimdm.training.same_masks import same_masks
from multimdm.training.seeds import derive, stage_seed
from multimdm.training.settings import CoupleRecipe
from multimdm.training.sources import Source, open_source
from multimdm.training.starts import check_fits


def couple_job(recipe: CoupleRecipe, name: str) -> Job:
    """The network of a checkpoint, whose noise is to be tied to the texts; one mask becomes several that differ."""
    start = multimdm.load(recipe.init)
    source = open_source(recipe.data, stage_seed(recipe.train.seed, start.lineage), start.tokenizer)
    check_fits(start, recipe.init, source)
    quantiles = open_quantiles(recipe.quantile, recipe.init, start, source)
    start = _masked_start(recipe, start)
    network, process = start.network, start.process
    assert isinstance(process, MultiMask)
    coded = process.num_masks == 1 and recipe.mask_codes > 0
    if process.num_masks == 1:
        network, process = _several_masks(recipe, start, source)
    elif recipe.process is not None:
        process = same_masks(recipe.process, recipe.init, recipe.train.seed, start, source)
    network = _seeing(recipe, network)
    if coded and isinstance(network, DiT):
        network = code_masks(network, recipe.mask_codes, derive(recipe.train.seed, "mask codes"))
    process = process.tied(recipe.noise_shown)
    model = Model(
        network,
        process,
        start.tokenizer or source.tokenizer,
        lineage=start.lineage,
        advice=recipe.advice or SamplingAdvice(order="confidence", temperature=0.0, threshold="by_steps"),
        cell_order=quantiles.order if isinstance(quantiles.order, torch.Tensor) else None,
    )
    objective = Coupled(process, recipe.shares, recipe.weight)
    return Job(name, "couple", model, objective, source, recipe, quantiles=quantiles)


def _masked_start(recipe: CoupleRecipe, start: Model) -> Model:
    """A masked or multi-mask model: an autoregressive one is made to look both ways."""
    if start.process is None:
        assert isinstance(start.network, DiT)
        network = look_both_ways(start.network)
        return replace(start, network=network, process=MultiMask(network.config.vocab_size))
    if not isinstance(start.process, MultiMask):
        raise ValueError(
            f"init must be an autoregressive, masked or multi-mask model; {recipe.init} has {start.process!r}"
        )
    return start


def _seeing(recipe: CoupleRecipe, network: Backbone) -> Backbone:
    """A network that sees what the recipe says: noise, time."""
    if not isinstance(network, DiT):
        require(
            recipe.conditioning == "none" and recipe.dropout is None and not recipe.noise_shown,
            f"conditioning must be none, noise_shown false and dropout left out: {recipe.init} is a LLaDA network, "
            "which has no place for them",
        )
        return network
    require(
        recipe.noise_shown or not network.config.noise_rows,
        f"noise_shown must be true: the network of {recipe.init} is shown the noise already",
    )
    network = show_noise(network) if recipe.noise_shown else network
    network = network if recipe.conditioning == "none" else gate_time(network, recipe.conditioning)
    return network if recipe.dropout is None else with_dropout(network, recipe.dropout)


def _several_masks(recipe: CoupleRecipe, start: Model, source: Source) -> tuple[DiT, MultiMask]:
    """Of a network with one mask."""
    if recipe.process is None or recipe.process.num_masks == 1:
        raise ValueError(
            f"process.num_masks must be at least 2: {recipe.init} has one mask, and noise of one mask tells nothing"
        )
    if not isinstance(start.network, DiT):
        raise ValueError(f"{recipe.init} is a LLaDA network with one mask: give it several by multimdm adapt first")
    M, seed = recipe.process.num_masks, recipe.train.seed
    network = expand_masks(start.network, M)
    return network, multi_mask(recipe.process, M, source, seed, embeddings=start.network.vocab_embed.embedding)
