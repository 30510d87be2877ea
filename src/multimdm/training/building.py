"""From a recipe to a job (network, process, objective, data): `pretrain` and `distill` here, the others beside."""

from dataclasses import replace

import multimdm
from multimdm._checks import require
from multimdm.models import Backbone, DiT, LLaDA, with_dropout
from multimdm.objectives import Candi, Consistency, Context, Distillation, Elbo, NextToken, Objective, RelaxedElbo, Sdtt
from multimdm.pipeline import Model
from multimdm.pipeline.settings import same_process
from multimdm.process import AnyProcess, Hybrid, Process, Uniform
from multimdm.training.adapt_jobs import adapt_job
from multimdm.training.couple_jobs import couple_job
from multimdm.training.job import Job, check_fits, context_of
from multimdm.training.networks import new_dit, new_llada, own_copy
from multimdm.training.processes import multi_mask, process_of
from multimdm.training.schema import DistillRecipe, PretrainRecipe
from multimdm.training.sources import Source, open_source
from multimdm.training.step_plan import stage_seed


def pretrain_job(recipe: PretrainRecipe, name: str) -> Job:
    """A network with random weights."""
    source = open_source(recipe.data, recipe.train.seed)
    recipe = settled(recipe, source.begin_at_zero)
    tokens, seed = source.tokenizer.vocab_size, recipe.train.seed
    if recipe.network.architecture == "llada":
        network = new_llada(recipe, tokens, source.length)
        process = multi_mask(recipe.process, network.config.num_masks, source, seed, network.config.vocab_size)
    else:
        process = process_of(recipe, tokens, lambda M: multi_mask(recipe.process, M, source, seed))
        network = new_dit(recipe, process, tokens, source.length, _never_in_data(source))
    context = context_of(recipe.context, source, network.config.vocab_size)
    model = Model(network, process, source.tokenizer)
    return Job(name, "pretrain", model, objective_of(recipe, process, tokens, context), source, recipe)


def settled(recipe: PretrainRecipe, begin_at_zero: bool) -> PretrainRecipe:
    """The recipe with what it leaves to the layout of its data."""
    if recipe.network.absolute_positions != "auto":
        return recipe
    return replace(recipe, network=replace(recipe.network, absolute_positions=begin_at_zero))


def distill_job(recipe: DistillRecipe, name: str) -> Job:
    """The network of a checkpoint, taught by itself or by another of the same process and shape."""
    start = multimdm.load(recipe.init)
    if start.process is None:
        raise ValueError(f"init must be a diffusion model; {recipe.init} is autoregressive")
    if not isinstance(start.process, Process):
        raise ValueError(f"init must be a model of a discrete process; {recipe.init} has {start.process!r}")
    source = open_source(recipe.data, stage_seed(recipe.train.seed, start.lineage))
    check_fits(start, recipe.init, source)
    require(
        not start.process.tied_noise,
        f"the noise of {recipe.init} is tied to the text: distilling such a model gains nothing (docs/quantile.md); "
        "train it longer by multimdm couple",
    )
    teacher = own_copy(start.network) if recipe.teacher is None else _teacher(recipe.teacher, start, recipe.init)
    context = context_of(recipe.context, source, start.process.vocab_size)
    objective = distillation_of(recipe, start.process, context)
    network = start.network
    if recipe.dropout is not None:
        if not isinstance(network, DiT):
            raise ValueError(f"dropout must be left out: {recipe.init} is a LLaDA network, which has none")
        network = with_dropout(network, recipe.dropout)
    tokenizer = start.tokenizer or source.tokenizer
    model = replace(start, network=network, tokenizer=tokenizer, foreign=None, leftover={})
    return Job(name, "distill", model, objective, source, recipe, teacher)


def distillation_of(recipe: DistillRecipe, process: Process, context: Context | None = None) -> Distillation:
    """The objective of the section that the recipe has; a teacher is still to be given."""
    if recipe.consistency is not None:
        return Consistency(process, recipe.consistency, context=context)
    assert recipe.sdtt is not None
    return Sdtt(process, recipe.sdtt, context=context)


def _teacher(path: str, student: Model, init: str) -> Backbone:
    """The network of a checkpoint that the student can become."""
    model = multimdm.load(path)
    if not same_process(model.process, student.process):
        raise ValueError(
            f"teacher and init must have the same process; {path} has {model.process!r}, {init} {student.process!r}"
        )
    theirs, ours = (
        x.network.config if isinstance(x.network, LLaDA) else replace(x.network.config, dropout=0.0)
        for x in (model, student)
    )
    require(theirs == ours, f"teacher and init must have networks of one shape; {path} has {theirs}, {init} {ours}")
    return model.network


def objective_of(
    recipe: PretrainRecipe, process: AnyProcess | None, vocab_size: int, context: Context | None = None
) -> Objective:
    """What a system is trained by."""
    if process is None:
        return NextToken(vocab_size)
    if isinstance(process, Hybrid):
        return Candi(process)
    if recipe.relaxation is not None and isinstance(process, Uniform):
        return RelaxedElbo(process, recipe.relaxation)
    return Elbo(process, recipe.identification, context)


def _never_in_data(source: Source) -> tuple[int, ...]:
    """A mask token inside the vocabulary (BERT's) is no token of any text."""
    mask_id = source.tokenizer.mask_id
    return () if mask_id is None else (mask_id,)


JOBS = {"pretrain": pretrain_job, "adapt": adapt_job, "couple": couple_job, "distill": distill_job}
"""Command -> what builds its job."""
