"""From a recipe to a job: the network, its process, the objective and the data."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch

import multimdm
from multimdm._checks import require
from multimdm.models import (
    Backbone,
    DiT,
    DiTConfig,
    LLaDA,
    expand_masks,
    gate_time,
    resemble_tokens,
    start_copying,
    tell_masks_apart,
    with_dropout,
)
from multimdm.objectives import Candi, Consistency, Context, Distillation, Elbo, NextToken, Objective, RelaxedElbo, Sdtt
from multimdm.pipeline import Model
from multimdm.pipeline.settings import same_process
from multimdm.process import AnyProcess, Hybrid, MultiMask, Process, Schedule, Uniform
from multimdm.training.contexts import context_of
from multimdm.training.couple_jobs import couple_job
from multimdm.training.llada_jobs import adapt_llada_job, pretrain_llada
from multimdm.training.loop import Job
from multimdm.training.processes import hybrid, multi_mask
from multimdm.training.quantile_jobs import open_quantiles
from multimdm.training.same_masks import check_continued, same_masks
from multimdm.training.seeds import derive, stage_seed
from multimdm.training.settings import AdaptRecipe, DistillRecipe, PretrainRecipe
from multimdm.training.sources import Source, open_source
from multimdm.training.starts import check_fits, own_copy


def pretrain_job(recipe: PretrainRecipe, name: str) -> Job:
    """A network with random weights."""
    source = open_source(recipe.data, recipe.train.seed)
    recipe = settled(recipe, source.begin_at_zero)
    if recipe.network.architecture == "llada":
        model = pretrain_llada(recipe, source)
        context = context_of(recipe.context, source, model.network.config.vocab_size)
        return Job(name, "pretrain", model, objective_of(recipe, model.process, 0, context), source, recipe)
    V = source.tokenizer.vocab_size
    process = process_of(recipe, V, lambda M: multi_mask(recipe.process, M, source, recipe.train.seed))
    config = dit_config(recipe, process, V, source.length, _never_in_data(source))
    torch.manual_seed(derive(recipe.train.seed, "weights"))
    network = DiT(config)
    if recipe.network.embedding_std is not None:
        for table in (network.vocab_embed, network.position_embed):
            if table is not None:
                torch.nn.init.normal_(table.embedding, std=recipe.network.embedding_std)
    if recipe.network.copying_start:
        start_copying(network)
    model = Model(network, process, source.tokenizer)
    context = context_of(recipe.context, source, V)
    return Job(name, "pretrain", model, objective_of(recipe, process, V, context), source, recipe)


def settled(recipe: PretrainRecipe, begin_at_zero: bool) -> PretrainRecipe:
    """The recipe with what it leaves to the layout of its data."""
    if recipe.network.absolute_positions != "auto":
        return recipe
    return replace(recipe, network=replace(recipe.network, absolute_positions=begin_at_zero))


def dit_config(
    recipe: PretrainRecipe, process: AnyProcess | None, vocab_size: int, length: int, suppressed: tuple[int, ...] = ()
) -> DiTConfig:
    """The network that a recipe asks for, over these tokens."""
    shape = recipe.network.shape
    return DiTConfig(
        vocab_size=vocab_size,
        num_masks=1 if process is None else process.num_masks,  # an autoregressive network has a start symbol
        max_length=length,
        dropout=recipe.network.dropout,
        absolute_positions=recipe.network.absolute_positions is True,
        conditioning=_conditioning(recipe),
        causal=recipe.system == "ar",
        embedding_norm=_embedding_norm(recipe),
        suppressed=suppressed,
        hidden_dim=shape["hidden_dim"],
        num_blocks=shape["num_blocks"],
        num_heads=shape["num_heads"],
        cond_dim=shape["cond_dim"],
    )


def adapt_job(recipe: AdaptRecipe, name: str) -> Job:
    """The network of a checkpoint, its one mask made many; while they are copies, it gives the logits it gave."""
    if recipe.backbone == "llada":
        return adapt_llada_job(recipe, name)
    start = multimdm.load(recipe.init)
    require(
        isinstance(start.network, DiT),
        f"{recipe.init} is a LLaDA network: adapt it with backbone: llada (--backbone llada)",
    )
    assert isinstance(start.network, DiT)
    require(
        isinstance(start.process, MultiMask) and not start.process.tied_noise,
        f"init must be a masked diffusion model with one mask, of which more are made, or with the masks that are "
        f"asked for; {recipe.init} has {start.process!r}",
    )
    assert isinstance(start.process, MultiMask)
    source = open_source(recipe.data, stage_seed(recipe.train.seed, start.lineage))
    check_fits(start, recipe.init, source)
    if start.process.num_masks > 1:
        check_continued(recipe, start.process)
        network, process = start.network, same_masks(recipe.process, recipe.init, recipe.train.seed, start, source)
    else:
        M, embeddings = recipe.process.num_masks, start.network.vocab_embed.embedding
        process = multi_mask(recipe.process, M, source, recipe.train.seed, embeddings=embeddings)
        network = _with_mask_rows(recipe, expand_masks(start.network, M), process)
    if recipe.conditioning != "none":
        network = gate_time(network, recipe.conditioning)
    if recipe.dropout is not None:
        network = with_dropout(network, recipe.dropout)
    model = Model(network, process, source.tokenizer, lineage=start.lineage)
    context = context_of(recipe.context, source, process.vocab_size)
    return Job(name, "adapt", model, Elbo(process, recipe.identification, context), source, recipe)


def _with_mask_rows(recipe: AdaptRecipe, network: DiT, process: MultiMask) -> DiT:
    """With masks that differ as the recipe says; one mask alone differs from none."""
    if recipe.mask_rows == "copies" or process.num_masks == 1:
        return network
    if recipe.mask_rows == "noise":
        return tell_masks_apart(network, recipe.row_scale, derive(recipe.train.seed, "mask noise"))
    return resemble_tokens(network, process.assignment, recipe.row_scale)


def distill_job(recipe: DistillRecipe, name: str) -> Job:
    """The network of a checkpoint, taught by itself or by another of the same process and shape."""
    start = multimdm.load(recipe.init)
    if start.process is None:
        raise ValueError(f"init must be a diffusion model; {recipe.init} is autoregressive")
    if not isinstance(start.process, Process):
        raise ValueError(f"init must be a model of a discrete process; {recipe.init} has {start.process!r}")
    source = open_source(recipe.data, stage_seed(recipe.train.seed, start.lineage))
    check_fits(start, recipe.init, source)
    _check_tie(recipe, start)
    teacher = own_copy(start.network) if recipe.teacher is None else _teacher(recipe.teacher, start, recipe.init)
    context = context_of(recipe.context, source, start.process.vocab_size)
    objective = distillation_of(recipe, start.process, context)
    network = start.network
    if recipe.dropout is not None:
        if not isinstance(network, DiT):
            raise ValueError(f"dropout must be left out: {recipe.init} is a LLaDA network, which has none")
        network = with_dropout(network, recipe.dropout)
    tokenizer = start.tokenizer or source.tokenizer
    quantiles = None if recipe.quantile is None else open_quantiles(recipe.quantile, recipe.init, start, source)
    model = replace(start, network=network, tokenizer=tokenizer, foreign=None, leftover={})
    return Job(name, "distill", model, objective, source, recipe, teacher, quantiles)


def distillation_of(recipe: DistillRecipe, process: Process, context: Context | None = None) -> Distillation:
    """By the section that the recipe has; a teacher is still to be given."""
    if recipe.consistency is not None:
        return Consistency(process, recipe.consistency, context=context)
    assert recipe.sdtt is not None
    return Sdtt(process, recipe.sdtt, context=context)


def _check_tie(recipe: DistillRecipe, start: Model) -> None:
    """What was learnt of quantile noise is lost along paths that end elsewhere, and it is no use to other models."""
    process, anchored = start.process, recipe.consistency is not None and recipe.consistency.coupling == "anchored"
    tied = isinstance(process, MultiMask) and process.tied_noise
    require(
        tied or recipe.quantile is None,
        f"quantile is for an init with quantile noise; {recipe.init} has none: make one by multimdm couple",
    )
    require(
        tied or not anchored or not isinstance(process, MultiMask),
        f"coupling anchored is for an init whose noise is tied to the text; {recipe.init} is none: make one by "
        "multimdm couple, or take another coupling",
    )
    require(
        not tied or recipe.quantile is not None,
        f"the noise of {recipe.init} is tied to the text: give the section quantile that tied it, and consistency with "
        "coupling: anchored, or sdtt; other ways to distil would untie it",
    )


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


def process_of(recipe: PretrainRecipe, vocab_size: int, masks: Callable[[int], MultiMask]) -> AnyProcess | None:
    """The process of a system; `masks` makes that of so many masks."""
    if recipe.system == "ar":
        return None
    if recipe.system == "duo":
        return Uniform(vocab_size, Schedule(recipe.process.rho, recipe.process.alpha))
    if recipe.system == "candi":
        return hybrid(recipe.process, vocab_size, recipe.network.shape["hidden_dim"])
    return masks(recipe.process.num_masks if recipe.system == "multimdm" else 1)


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


def _conditioning(recipe: PretrainRecipe) -> Literal["sigma", "time", "none"]:
    """What the base code of each system conditions on: MDLM on nothing, DUO (and the paper) on time."""
    if recipe.system == "ar":
        return "none"
    if recipe.network.conditioning == "auto":
        return "none" if recipe.system == "mdlm" else "sigma"
    return recipe.network.conditioning


def _embedding_norm(recipe: PretrainRecipe) -> float | None:
    """CANDI's base code scales embeddings to length 1, so that they and the noise on them have one measure."""
    if recipe.network.embedding_norm is None and recipe.system == "candi":
        return 1.0
    return recipe.network.embedding_norm


def _never_in_data(source: Source) -> tuple[int, ...]:
    """A mask token inside the vocabulary (BERT's) is no token of any text."""
    mask_id = source.tokenizer.mask_id
    return () if mask_id is None else (mask_id,)


JOBS = {"pretrain": pretrain_job, "adapt": adapt_job, "couple": couple_job, "distill": distill_job}
"""By the command that asks for them."""
