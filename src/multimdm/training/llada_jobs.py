"""LLaDA in training: a small one from random weights, and the adaptation of one to many masks by LoRA (App. C.5)."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

import multimdm
from multimdm._checks import require
from multimdm.models import Adapter, LLaDA, LLaDAConfig
from multimdm.models.llada_masks import RESERVED, appended_rows, check_unused, expand_llada, reserved_rows
from multimdm.models.lora import attach
from multimdm.models.mask_rows import noise_offsets, token_offsets
from multimdm.objectives import Elbo
from multimdm.pipeline import Model
from multimdm.pipeline.hub import local_directory
from multimdm.pipeline.llada import base_digest, base_lineage, base_model_config, base_tokenizer, is_adapter
from multimdm.process import MultiMask
from multimdm.training.contexts import context_of
from multimdm.training.fitting import check_length, check_tokenizer
from multimdm.training.loop import Job
from multimdm.training.processes import multi_mask
from multimdm.training.same_masks import check_continued, same_masks
from multimdm.training.seeds import derive, stage_seed
from multimdm.training.settings import AdaptRecipe, PretrainRecipe
from multimdm.training.sources import Source, open_source

_ROWS = 64
"""A new network's vocabulary is a multiple of this: what is left over is in reserve, as in the published ones."""


def pretrain_llada(recipe: PretrainRecipe, source: Source) -> Model:
    """A network with random weights; masks lie behind the tokens, inside the vocabulary."""
    num_masks = recipe.process.num_masks if recipe.system == "multimdm" else 1
    config = llada_config(recipe, num_masks, source.tokenizer.vocab_size, source.length)
    torch.manual_seed(derive(recipe.train.seed, "weights"))
    network = LLaDA(config).initialise()
    if recipe.network.embedding_std is not None:
        torch.nn.init.normal_(network.wte.weight, std=recipe.network.embedding_std)
    process = multi_mask(recipe.process, num_masks, source, recipe.train.seed, config.vocab_size)
    return Model(network, process, source.tokenizer)


def llada_config(recipe: PretrainRecipe, num_masks: int, tokens: int, length: int) -> LLaDAConfig:
    """The network that a recipe asks for, over these tokens."""
    shape = recipe.network.shape
    V = -(-(tokens + num_masks) // _ROWS) * _ROWS
    return LLaDAConfig(
        vocab_size=V,
        mask_rows=tuple(range(tokens, tokens + num_masks)),
        num_rows=V,
        hidden_dim=shape["hidden_dim"],
        num_blocks=shape["num_blocks"],
        num_heads=shape["num_heads"],
        num_kv_heads=shape["num_heads"],
        mlp_dim=-(-8 * shape["hidden_dim"] // 3),  # three matrices with as many weights as the usual two
        max_length=length,
    )


def adapt_llada_job(recipe: AdaptRecipe, name: str) -> Job:
    """The network of a checkpoint with an adapter and many masks; while they are copies, it gives the logits it gave.

    What does not fit is found out from the small files, before weights are read.
    """
    if is_adapter(local_directory(recipe.init)):
        return _continued_adapter(recipe, name)
    config = base_model_config(recipe.init)
    source = open_source(recipe.data, stage_seed(recipe.train.seed, base_lineage(recipe.init)))
    _check_fits(config, recipe, source)
    check_tokenizer(base_tokenizer(recipe.init), recipe.init, source)
    rows = _mask_rows(config, recipe, source)
    start = multimdm.load(recipe.init, precision=recipe.lora.precision)
    assert isinstance(start.network, LLaDA)
    adapter = Adapter(
        rank=recipe.lora.rank,
        alpha=recipe.lora.alpha,
        dropout=recipe.lora.dropout,
        base=str(Path(recipe.init).resolve()) if Path(recipe.init).is_dir() else recipe.init,
        base_digest=base_digest(recipe.init),
    )
    process = multi_mask(recipe.process, recipe.process.num_masks, source, recipe.train.seed, config.vocab_size)
    network = expand_llada(start.network, rows, _mask_offsets(recipe, start.network, process))
    network = attach(network, adapter, derive(recipe.train.seed, "lora"))
    model = Model(network, process, start.tokenizer or source.tokenizer, lineage=start.lineage)
    context = context_of(recipe.context, source, process.vocab_size)
    return Job(name, "adapt", model, Elbo(process, recipe.identification, context), source, recipe)


def _continued_adapter(recipe: AdaptRecipe, name: str) -> Job:
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
    model = replace(start, process=process, tokenizer=start.tokenizer or source.tokenizer)
    context = context_of(recipe.context, source, process.vocab_size)
    return Job(name, "adapt", model, Elbo(process, recipe.identification, context), source, recipe)


def _mask_offsets(recipe: AdaptRecipe, network: LLaDA, process: MultiMask) -> Tensor | None:
    """What makes the masks differ, if the recipe asks for it; one mask alone differs from none."""
    if recipe.mask_rows == "copies" or process.num_masks == 1:
        return None
    table, seed = network.wte.weight.detach(), derive(recipe.train.seed, "mask noise")
    copies = table[list(network.config.mask_rows)].expand(process.num_masks, -1)
    if recipe.mask_rows == "noise":
        return noise_offsets(copies, recipe.row_scale, seed)
    return token_offsets(copies, table[: process.vocab_size], process.assignment, recipe.row_scale)


def check_llada_fits(start: Model, init: str, source: Source) -> None:
    """A checkpoint of any number of masks and the data that it is to be trained on."""
    assert isinstance(start.process, MultiMask)
    config = start.network.config
    require(
        source.tokenizer.vocab_size <= config.vocab_size and source.length <= config.max_length,
        f"{init} has {config.vocab_size} tokens and {config.max_length} positions; the data have "
        f"{source.tokenizer.vocab_size} and {source.length}",
    )


def _mask_rows(config: LLaDAConfig, recipe: AdaptRecipe, source: Source) -> tuple[int, ...]:
    """Where the masks are to lie; an id that the data use is refused."""
    rows = mask_rows(config, recipe, source.tokenizer.vocab_size)
    check_unused(rows, source.counts().nonzero().flatten().tolist())
    return rows


def mask_rows(config: LLaDAConfig, recipe: AdaptRecipe, tokens: int) -> tuple[int, ...]:
    """Where the masks are to lie, beside so many tokens."""
    M, lora = recipe.process.num_masks, recipe.lora
    if lora.rows == "appended":
        return appended_rows(config, M)
    # Ids that the tokenizer does not have are in reserve too.
    spare = lora.spare or RESERVED.get(config.vocab_size) or range(tokens, config.vocab_size)
    return reserved_rows(config, M, list(spare))


def _check_fits(config: LLaDAConfig, recipe: AdaptRecipe, source: Source) -> None:
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
