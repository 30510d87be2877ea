"""From a recipe of `multimdm couple` to a job: a checkpoint that is to learn from quantile noise, and its teacher."""

import torch

import multimdm
from multimdm._checks import require
from multimdm.evaluation.quantile_models import quantile_recipe
from multimdm.evaluation.teachers import QuantileTeacher, find_teacher
from multimdm.evaluation.teachers.base import order_of
from multimdm.models import DiT
from multimdm.objectives import Tied
from multimdm.pipeline import Model
from multimdm.process import MultiMask
from multimdm.process.quantile import Order
from multimdm.samplers.advice import SamplingAdvice
from multimdm.training.job import Job, check_fits
from multimdm.training.networks import for_tied_noise
from multimdm.training.processes import multi_mask, same_masks
from multimdm.training.quantile_pairs import Quantiles
from multimdm.training.schema import CoupleRecipe
from multimdm.training.settings import QuantileSettings
from multimdm.training.sources import NoData, Source, open_source
from multimdm.training.step_plan import stage_seed

_COUNTED_TEXTS = 20_000
"""Training texts in which the neighbours of tokens are counted."""


def couple_job(recipe: CoupleRecipe, name: str) -> Job:
    """The network of a checkpoint, whose noise is to be tied to the texts; one mask becomes several that differ."""
    start = multimdm.load(recipe.init)
    source = open_source(recipe.data, stage_seed(recipe.train.seed, start.lineage), start.tokenizer)
    check_fits(start, recipe.init, source)
    quantiles = open_quantiles(recipe.quantile, recipe.init, start, source)
    require(
        start.process is None or isinstance(start.process, MultiMask),
        f"init must be an autoregressive, masked or multi-mask model; {recipe.init} has {start.process!r}",
    )
    network = for_tied_noise(recipe, start.network)
    process = _masks(recipe, start, source).tied(recipe.noise_shown)
    model = Model(
        network,
        process,
        start.tokenizer or source.tokenizer,
        lineage=start.lineage,
        advice=recipe.advice or SamplingAdvice(order="confidence", temperature=0.0, threshold="by_steps"),
        cell_order=quantiles.order if isinstance(quantiles.order, torch.Tensor) else None,
    )
    objective = Tied(process, recipe.shares, recipe.weight)
    return Job(name, "couple", model, objective, source, recipe, quantiles=quantiles)


def _masks(recipe: CoupleRecipe, start: Model, source: Source) -> MultiMask:
    """The masks of the checkpoint, if it has several; else new ones, which the recipe names."""
    if isinstance(start.process, MultiMask) and start.process.num_masks > 1:
        if recipe.process is None:
            return start.process
        return same_masks(recipe.process, recipe.init, recipe.train.seed, start, source)
    assert recipe.process is not None
    assert isinstance(start.network, DiT)
    M, embeddings = recipe.process.num_masks, start.network.vocab_embed.embedding
    return multi_mask(recipe.process, M, source, recipe.train.seed, embeddings=embeddings, tied_noise=True)


def open_quantiles(settings: QuantileSettings, init: str, start: Model, source: Source) -> Quantiles:
    """The teacher that the settings name or, without a name, the checkpoint that is continued."""
    name = init if settings.teacher is None else settings.teacher
    try:
        teacher = find_teacher(name, source.tokenizer, source.length, torch.device("cpu"), source.begins_with)
    except ValueError as error:
        hint = "" if settings.teacher is not None else "; or name one: quantile.teacher (--quantile.teacher)"
        raise ValueError(f"{error}{hint}") from None
    require(
        settings.texts == "data" or not source.hides_lengths,
        "quantile.texts: teacher needs a model that learns where texts end: leave out data.learn_padding: false",
    )
    return Quantiles(settings, teacher, _order(settings, teacher, start, source))


def _order(settings: QuantileSettings, teacher: QuantileTeacher, start: Model, source: Source) -> Order:
    """The order of the vocabulary: that of the checkpoint, if it has learnt to read it, else a new one."""
    earlier = quantile_recipe(start)
    if start.cell_order is not None and earlier is not None and earlier["quantile"]["order"] == settings.order:
        return start.cell_order
    texts = None if isinstance(source, NoData) else lambda: source.train(0, _COUNTED_TEXTS).ids
    return order_of(teacher, settings.order, texts)
