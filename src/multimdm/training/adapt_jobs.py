"""From a recipe of `multimdm adapt` to a job: a checkpoint whose one mask becomes many.

A DiT is trained as a whole. A LLaDA in its published layout gets an adapter (LoRA, App. C.5), or its adapter is trained
further.
"""

from dataclasses import replace
from pathlib import Path

import multimdm
from multimdm._checks import require
from multimdm.data.foreign_tokenizers import saved_tokenizer
from multimdm.models import DiT, LLaDA, LLaDAConfig
from multimdm.models.llada_masks import check_unused
from multimdm.objectives import Elbo
from multimdm.pipeline import Model
from multimdm.pipeline.hub import local_directory
from multimdm.pipeline.llada import base_digest, base_lineage, base_model_config, is_adapter
from multimdm.process import MultiMask
from multimdm.training.job import Job, check_fits, check_length, check_llada_fits, check_tokenizer, context_of
from multimdm.training.networks import adapted_dit, adapted_llada, adapter_of, llada_mask_rows
from multimdm.training.processes import check_continued, multi_mask, same_masks
from multimdm.training.schema import AdaptRecipe
from multimdm.training.sources import Source, open_source
from multimdm.training.step_plan import stage_seed


def adapt_job(recipe: AdaptRecipe, name: str) -> Job:
    """The network of a checkpoint, its one mask made many; while they are copies, it gives the logits it gave."""
    if recipe.backbone == "dit":
        model, source = _adapted_dit(recipe)
    elif is_adapter(local_directory(recipe.init)):
        model, source = _continued_adapter(recipe)
    else:
        model, source = _adapted_llada(recipe)
    process = model.process
    assert isinstance(process, MultiMask)
    context = context_of(recipe.context, source, process.vocab_size)
    return Job(name, "adapt", model, Elbo(process, recipe.identification, context), source, recipe)


def _adapted_dit(recipe: AdaptRecipe) -> tuple[Model, Source]:
    start = multimdm.load(recipe.init)
    require(
        isinstance(start.network, DiT),
        f"{recipe.init} is a LLaDA network: adapt it with backbone: llada (--backbone llada)",
    )
    assert isinstance(start.network, DiT)
    if not isinstance(start.process, MultiMask) or start.process.tied_noise:
        raise ValueError(
            f"init must be a masked diffusion model with one mask, of which more are made, or with the masks that are "
            f"asked for; {recipe.init} has {start.process!r}"
        )
    source = open_source(recipe.data, stage_seed(recipe.train.seed, start.lineage))
    check_fits(start, recipe.init, source)
    if start.process.num_masks > 1:
        check_continued(recipe, start.process)
        process = same_masks(recipe.process, recipe.init, recipe.train.seed, start, source)
    else:
        M, embeddings = recipe.process.num_masks, start.network.vocab_embed.embedding
        process = multi_mask(recipe.process, M, source, recipe.train.seed, embeddings=embeddings)
    network = adapted_dit(recipe, start.network, process)
    return Model(network, process, source.tokenizer, lineage=start.lineage), source


def _adapted_llada(recipe: AdaptRecipe) -> tuple[Model, Source]:
    """What does not fit is found out from the small files, before weights are read."""
    config = base_model_config(recipe.init)
    source = open_source(recipe.data, stage_seed(recipe.train.seed, base_lineage(recipe.init)))
    _check_llada_base(config, recipe, source)
    check_tokenizer(saved_tokenizer(local_directory(recipe.init)), recipe.init, source)
    rows = llada_mask_rows(config, recipe, source.tokenizer.vocab_size)
    check_unused(rows, source.counts().nonzero().flatten().tolist())
    start = multimdm.load(recipe.init, precision=recipe.lora.precision)
    assert isinstance(start.network, LLaDA)
    place = str(Path(recipe.init).resolve()) if Path(recipe.init).is_dir() else recipe.init
    adapter = adapter_of(recipe, place, base_digest(recipe.init))
    process = multi_mask(recipe.process, recipe.process.num_masks, source, recipe.train.seed, config.vocab_size)
    network = adapted_llada(recipe, start.network, process, rows, adapter)
    return Model(network, process, start.tokenizer or source.tokenizer, lineage=start.lineage), source


def _continued_adapter(recipe: AdaptRecipe) -> tuple[Model, Source]:
    """An adapter that is trained further, with the masks and the rank that it has."""
    start = multimdm.load(recipe.init, precision=recipe.lora.precision)
    assert isinstance(start.network, LLaDA)
    assert isinstance(start.process, MultiMask)
    source = open_source(recipe.data, stage_seed(recipe.train.seed, start.lineage))
    check_tokenizer(start.tokenizer, recipe.init, source)
    check_llada_fits(start, recipe.init, source)
    check_continued(recipe, start.process)
    adapter, asked = start.network.adapter, recipe.lora
    assert adapter is not None
    ours, theirs = ((x.rank, x.alpha, x.dropout) for x in (asked, adapter))
    require(
        ours == theirs and not start.process.tied_noise,
        f"lora must be that of the adapter that is continued; {recipe.init} has rank, alpha, dropout = {theirs} on "
        f"{start.process!r}, the recipe asks for {ours}",
    )
    process = same_masks(recipe.process, recipe.init, recipe.train.seed, start, source)
    return replace(start, process=process, tokenizer=start.tokenizer or source.tokenizer), source


def _check_llada_base(config: LLaDAConfig, recipe: AdaptRecipe, source: Source) -> None:
    require(
        config.num_masks == 1,
        f"init must have one mask, of which more are made; {recipe.init} has {config.num_masks}",
    )
    require(
        source.tokenizer.vocab_size <= config.vocab_size,
        f"init and data must have the same vocabulary; {recipe.init} has {config.vocab_size} ids, the data "
        f"{source.tokenizer.vocab_size}: prepare the data with the tokenizer of the checkpoint",
    )
    check_length(config.max_length, recipe.init, source)
