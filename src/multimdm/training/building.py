"""From a recipe to a job: the network, its process, the objective and the data."""

from typing import Literal

import torch
from torch import Tensor

import multimdm
from multimdm.models import DiT, DiTConfig, expand_masks, gate_time, with_dropout
from multimdm.objectives import Elbo, NextToken, Objective, RelaxedElbo
from multimdm.pipeline import Model
from multimdm.process import MultiMask, Process, Schedule, Uniform, frequency_balanced, modulo, random_balanced
from multimdm.process.checks import require
from multimdm.training.loop import Job
from multimdm.training.seeds import derive
from multimdm.training.settings import AdaptRecipe, PretrainRecipe, ProcessChoice
from multimdm.training.sources import Source, open_source


def pretrain_job(recipe: PretrainRecipe, name: str) -> Job:
    """A network with random weights."""
    source = open_source(recipe.data, recipe.train.seed)
    V = source.tokenizer.vocab_size
    process = _process(recipe, source)
    num_masks = 1 if process is None else process.num_masks  # an autoregressive network has a start symbol
    shape = recipe.network.shape
    config = DiTConfig(
        vocab_size=V,
        num_masks=num_masks,
        max_length=source.length,
        dropout=recipe.network.dropout,
        absolute_positions=recipe.network.absolute_positions,
        conditioning=_conditioning(recipe),
        causal=recipe.system == "ar",
        suppressed=_never_in_data(source),
        hidden_dim=shape["hidden_dim"],
        num_blocks=shape["num_blocks"],
        num_heads=shape["num_heads"],
        cond_dim=shape["cond_dim"],
    )
    torch.manual_seed(derive(recipe.train.seed, "weights"))
    network = DiT(config)
    if recipe.network.embedding_std is not None:
        for table in (network.vocab_embed, network.position_embed):
            if table is not None:
                torch.nn.init.normal_(table.embedding, std=recipe.network.embedding_std)
    model = Model(network, process, source.tokenizer)
    return Job(name, "pretrain", model, _objective(recipe, process, V), source, recipe)


def adapt_job(recipe: AdaptRecipe, name: str) -> Job:
    """The network of a checkpoint, its one mask copied to many; at step 0 it gives the logits it gave before."""
    start = multimdm.load(recipe.init)
    require(
        isinstance(start.process, MultiMask) and start.process.num_masks == 1,
        f"init must be a masked diffusion model with one mask, of which more are made; {recipe.init} has "
        f"{start.process!r}",
    )
    source = open_source(recipe.data, recipe.train.seed)
    if start.tokenizer is not None:
        require(
            start.tokenizer.fingerprint == source.tokenizer.fingerprint,
            f"init and data must have the same tokenizer; {recipe.init} has {start.tokenizer!r}, the data "
            f"{source.tokenizer!r}: prepare the data with the tokenizer of the checkpoint",
        )
    config = start.network.config
    require(
        config.vocab_size == source.tokenizer.vocab_size,
        f"init and data must have the same vocabulary; {recipe.init} has {config.vocab_size} tokens, the data "
        f"{source.tokenizer.vocab_size}",
    )
    require(
        config.max_length >= source.length,
        f"the data have sequences of {source.length} tokens; {recipe.init} is made for {config.max_length} at most",
    )
    network = expand_masks(start.network, recipe.process.num_masks)
    if recipe.conditioning != "none":
        network = gate_time(network, recipe.conditioning)
    if recipe.dropout is not None:
        network = with_dropout(network, recipe.dropout)
    process = multi_mask(recipe.process, recipe.process.num_masks, source, recipe.train.seed)
    model = Model(network, process, source.tokenizer, lineage=start.lineage)
    return Job(name, "adapt", model, Elbo(process, recipe.identification), source, recipe)


def multi_mask(choice: ProcessChoice, num_masks: int, source: Source, seed: int) -> MultiMask:
    """The masked process of a recipe."""
    V = source.tokenizer.vocab_size
    return MultiMask(V, num_masks, Schedule(choice.rho, choice.alpha), _assignment(choice, num_masks, source, seed))


def _assignment(choice: ProcessChoice, num_masks: int, source: Source, seed: int) -> Tensor:
    V = source.tokenizer.vocab_size
    if choice.assignment == "random":
        return random_balanced(V, num_masks, derive(seed, "assignment"))
    if choice.assignment == "frequency":
        return frequency_balanced(source.counts().double(), num_masks)
    return modulo(V, num_masks)


def _process(recipe: PretrainRecipe, source: Source) -> Process | None:
    if recipe.system == "ar":
        return None
    if recipe.system == "duo":
        return Uniform(source.tokenizer.vocab_size, Schedule(recipe.process.rho, recipe.process.alpha))
    num_masks = recipe.process.num_masks if recipe.system == "multimdm" else 1
    return multi_mask(recipe.process, num_masks, source, recipe.train.seed)


def _objective(recipe: PretrainRecipe, process: Process | None, vocab_size: int) -> Objective:
    if process is None:
        return NextToken(vocab_size)
    if recipe.relaxation is not None and isinstance(process, Uniform):
        return RelaxedElbo(process, recipe.relaxation)
    return Elbo(process, recipe.identification)


def _conditioning(recipe: PretrainRecipe) -> Literal["sigma", "time", "none"]:
    """What the base code of each system conditions on: MDLM on nothing, DUO (and the paper) on time."""
    if recipe.system == "ar":
        return "none"
    if recipe.network.conditioning == "auto":
        return "none" if recipe.system == "mdlm" else "sigma"
    return recipe.network.conditioning


def _never_in_data(source: Source) -> tuple[int, ...]:
    """A mask token inside the vocabulary (BERT's) is no token of any text."""
    mask_id = source.tokenizer.mask_id
    return () if mask_id is None else (mask_id,)


JOBS = {"pretrain": pretrain_job, "adapt": adapt_job}
"""By the command that asks for them."""
