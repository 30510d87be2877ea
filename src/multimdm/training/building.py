"""From a recipe to a job: the network, its process, the objective and the data."""

import copy
from dataclasses import replace
from typing import Literal

import torch

import multimdm
from multimdm.models import (
    Backbone,
    DiT,
    DiTConfig,
    LLaDA,
    expand_masks,
    gate_time,
    show_noise,
    start_copying,
    tell_masks_apart,
    with_dropout,
)
from multimdm.objectives import Candi, Consistency, Coupled, Elbo, NextToken, Objective, RelaxedElbo, Sdtt
from multimdm.pipeline import Model
from multimdm.pipeline.settings import same_process
from multimdm.process import AnyProcess, Hybrid, MultiMask, Process, Schedule, Uniform
from multimdm.process.checks import require
from multimdm.training.fitting import check_length, check_tokenizer
from multimdm.training.llada_jobs import adapt_llada_job, check_llada_fits, pretrain_llada
from multimdm.training.loop import Job
from multimdm.training.processes import hybrid, multi_mask
from multimdm.training.seeds import derive
from multimdm.training.settings import AdaptRecipe, CoupleRecipe, DistillRecipe, PretrainRecipe, ProcessChoice
from multimdm.training.sources import Source, open_source


def pretrain_job(recipe: PretrainRecipe, name: str) -> Job:
    """A network with random weights."""
    source = open_source(recipe.data, recipe.train.seed)
    if recipe.network.architecture == "llada":
        model = pretrain_llada(recipe, source)
        return Job(name, "pretrain", model, _objective(recipe, model.process, 0), source, recipe)
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
        embedding_norm=_embedding_norm(recipe),
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
    if recipe.network.copying_start:
        start_copying(network)
    model = Model(network, process, source.tokenizer)
    return Job(name, "pretrain", model, _objective(recipe, process, V), source, recipe)


def adapt_job(recipe: AdaptRecipe, name: str) -> Job:
    """The network of a checkpoint, its one mask copied to many; at step 0 it gives the logits it gave before."""
    if recipe.backbone == "llada":
        return adapt_llada_job(recipe, name)
    start = multimdm.load(recipe.init)
    require(
        isinstance(start.network, DiT),
        f"{recipe.init} is a LLaDA network: adapt it with backbone: llada (--backbone llada)",
    )
    assert isinstance(start.network, DiT)
    require(
        isinstance(start.process, MultiMask) and start.process.num_masks == 1,
        f"init must be a masked diffusion model with one mask, of which more are made; {recipe.init} has "
        f"{start.process!r}",
    )
    source = open_source(recipe.data, recipe.train.seed)
    _check_fits(start, recipe.init, source)
    network = expand_masks(start.network, recipe.process.num_masks)
    if recipe.conditioning != "none":
        network = gate_time(network, recipe.conditioning)
    if recipe.dropout is not None:
        network = with_dropout(network, recipe.dropout)
    embeddings = start.network.vocab_embed.embedding
    process = multi_mask(recipe.process, recipe.process.num_masks, source, recipe.train.seed, embeddings=embeddings)
    model = Model(network, process, source.tokenizer, lineage=start.lineage)
    return Job(name, "adapt", model, Elbo(process, recipe.identification), source, recipe)


def couple_job(recipe: CoupleRecipe, name: str) -> Job:
    """The network of a checkpoint, whose noise is to be tied to the texts; one mask becomes several that differ."""
    start = multimdm.load(recipe.init)
    if not isinstance(start.process, MultiMask):
        raise ValueError(f"init must be a masked or multi-mask diffusion model; {recipe.init} has {start.process!r}")
    source = open_source(recipe.data, recipe.train.seed)
    _check_fits(start, recipe.init, source)
    network, process = start.network, start.process
    if process.num_masks == 1:
        network, process = _several_masks(recipe, start, source)
    elif recipe.process is not None:
        process = _same_masks(recipe.process, recipe, start, process, source)
    if isinstance(network, DiT):
        require(
            recipe.noise_shown or not network.config.noise_rows,
            f"noise_shown must be true: the network of {recipe.init} is shown the noise already",
        )
        network = show_noise(network) if recipe.noise_shown else network
        network = network if recipe.conditioning == "none" else gate_time(network, recipe.conditioning)
        network = network if recipe.dropout is None else with_dropout(network, recipe.dropout)
    else:
        require(
            recipe.conditioning == "none" and recipe.dropout is None and not recipe.noise_shown,
            f"conditioning must be none, noise_shown false and dropout left out: {recipe.init} is a LLaDA network, "
            "which has no place for them",
        )
    process = process.tied(recipe.noise_shown)
    teacher = None
    if recipe.generation is not None:
        _check_makes_pairs(recipe, start, process, source)
        teacher = _copy(network)
    model = Model(network, process, start.tokenizer or source.tokenizer, lineage=start.lineage)
    objective = Coupled(process, recipe.at_one, recipe.weight)
    return Job(name, "couple", model, objective, source, recipe, teacher, recipe.matching, recipe.generation)


def _check_makes_pairs(recipe: CoupleRecipe, start: Model, process: MultiMask, source: Source) -> None:
    """Noise must lead init to texts as it shall lead the model that is trained on them."""
    require(
        isinstance(start.process, MultiMask) and start.process.tied_noise,
        f"generation needs an init whose noise is tied to the text already; {recipe.init} is none: make one by "
        "multimdm couple with matching",
    )
    require(
        same_process(start.process, process),
        f"with generation process and noise_shown must be those of init; {recipe.init} has {start.process!r}, the "
        f"recipe asks for {process!r}",
    )
    require(
        not source.hides_lengths,
        "generation needs a model that learns where texts end: with data.learn_padding: false what it writes behind "
        "them would be trained on",
    )


def _same_masks(
    choice: ProcessChoice, recipe: CoupleRecipe, start: Model, process: MultiMask, source: Source
) -> MultiMask:
    """Those of init, with the schedule that is asked for: the paths are new."""
    same, made = choice.num_masks == process.num_masks, _assignment_by(start)
    if same and made is not None:
        same = choice.assignment == made
    elif same and choice.assignment != "clustered":  # what clusters were before training cannot be found again
        asked = multi_mask(choice, choice.num_masks, source, recipe.train.seed, process.vocab_size)
        same = torch.equal(asked.assignment, process.assignment)
    require(
        same,
        f"process must have the masks of init, or be left out; {recipe.init} has {process!r}, the recipe asks for "
        f"{choice.num_masks} masks, assignment {choice.assignment}",
    )
    return MultiMask(process.vocab_size, process.num_masks, Schedule(choice.rho, choice.alpha), process.assignment)


def _assignment_by(model: Model) -> str | None:
    """How its masks were assigned, as far as its lineage tells."""
    choices = [step.get("recipe", {}).get("process") or {} for step in model.lineage]
    names = [choice["assignment"] for choice in choices if choice.get("num_masks", 1) > 1 and "assignment" in choice]
    return names[-1] if names else None


def _several_masks(recipe: CoupleRecipe, start: Model, source: Source) -> tuple[DiT, MultiMask]:
    """Of a network with one mask."""
    if recipe.process is None or recipe.process.num_masks == 1:
        raise ValueError(
            f"process.num_masks must be at least 2: {recipe.init} has one mask, and noise of one mask tells nothing"
        )
    if not isinstance(start.network, DiT):
        raise ValueError(f"{recipe.init} is a LLaDA network with one mask: give it several by multimdm adapt first")
    M, seed = recipe.process.num_masks, recipe.train.seed
    network = tell_masks_apart(expand_masks(start.network, M), recipe.mask_noise, derive(seed, "mask noise"))
    return network, multi_mask(recipe.process, M, source, seed, embeddings=start.network.vocab_embed.embedding)


def distill_job(recipe: DistillRecipe, name: str) -> Job:
    """The network of a checkpoint, taught by itself or by another of the same process and shape."""
    start = multimdm.load(recipe.init)
    if start.process is None:
        raise ValueError(f"init must be a diffusion model; {recipe.init} is autoregressive")
    if not isinstance(start.process, Process):
        raise ValueError(f"init must be a model of a discrete process; {recipe.init} has {start.process!r}")
    source = open_source(recipe.data, recipe.train.seed)
    _check_fits(start, recipe.init, source)
    _check_tie(recipe, start)
    teacher = _copy(start.network) if recipe.teacher is None else _teacher(recipe.teacher, start, recipe.init)
    if recipe.consistency is not None:
        objective = Consistency(start.process, recipe.consistency)
    else:
        assert recipe.sdtt is not None
        objective = Sdtt(start.process, recipe.sdtt)
    network = start.network
    if recipe.dropout is not None:
        if not isinstance(network, DiT):
            raise ValueError(f"dropout must be left out: {recipe.init} is a LLaDA network, which has none")
        network = with_dropout(network, recipe.dropout)
    model = Model(network, start.process, start.tokenizer or source.tokenizer, lineage=start.lineage)
    return Job(name, "distill", model, objective, source, recipe, teacher, recipe.matching)


def _check_tie(recipe: DistillRecipe, start: Model) -> None:
    """What was learnt from matched pairs is lost along paths that end elsewhere, and matching is no use to others."""
    process, anchored = start.process, recipe.consistency is not None and recipe.consistency.coupling == "anchored"
    tied = isinstance(process, MultiMask) and process.tied_noise
    require(
        tied or recipe.matching is None,
        f"matching is for an init whose noise is tied to the text; {recipe.init} is none: make one by multimdm couple",
    )
    require(
        tied or not anchored or not isinstance(process, MultiMask),
        f"coupling anchored is for an init whose noise is tied to the text; {recipe.init} is none: make one by "
        "multimdm couple, or take another coupling",
    )
    require(
        not tied or recipe.matching is not None,
        f"the noise of {recipe.init} is tied to the text: give the section matching, and consistency with coupling: "
        "anchored, or sdtt; other ways to distil would untie it",
    )


def _copy(network: Backbone) -> Backbone:
    """A network of its own, but for the frozen weights under an adapter, which never change."""
    frozen = {id(x): x for x in network.parameters() if not x.requires_grad}
    return copy.deepcopy(network, frozen)


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


def _check_fits(start: Model, init: str, source: Source) -> None:
    """A checkpoint and the data that it is to be trained on."""
    check_tokenizer(start.tokenizer, init, source)
    if isinstance(start.network, LLaDA):
        check_llada_fits(start, init, source)
        return
    config = start.network.config
    require(
        config.vocab_size == source.tokenizer.vocab_size,
        f"init and data must have the same vocabulary; {init} has {config.vocab_size} tokens, the data "
        f"{source.tokenizer.vocab_size}",
    )
    check_length(config.max_length, init, source)


def _process(recipe: PretrainRecipe, source: Source) -> AnyProcess | None:
    if recipe.system == "ar":
        return None
    if recipe.system == "duo":
        return Uniform(source.tokenizer.vocab_size, Schedule(recipe.process.rho, recipe.process.alpha))
    if recipe.system == "candi":
        return hybrid(recipe.process, source.tokenizer.vocab_size, recipe.network.shape["hidden_dim"])
    num_masks = recipe.process.num_masks if recipe.system == "multimdm" else 1
    return multi_mask(recipe.process, num_masks, source, recipe.train.seed)


def _objective(recipe: PretrainRecipe, process: AnyProcess | None, vocab_size: int) -> Objective:
    if process is None:
        return NextToken(vocab_size)
    if isinstance(process, Hybrid):
        return Candi(process)
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
RECIPES = {"pretrain": PretrainRecipe, "adapt": AdaptRecipe, "couple": CoupleRecipe, "distill": DistillRecipe}
"""What they take."""
