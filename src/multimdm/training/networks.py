"""The networks that recipes ask for: new ones, and what `adapt` and `couple` make of the network of a checkpoint.

On the device "meta" weights have shapes and no contents: there a network is built alike, for `--dry-run` to look at,
and what would only change contents is left out.
"""

import copy
from typing import Literal

import torch
from torch import Tensor

from multimdm._checks import require
from multimdm.models import (
    Adapter,
    Backbone,
    DiT,
    DiTConfig,
    LLaDA,
    LLaDAConfig,
    code_masks,
    expand_masks,
    fade_masks,
    gate_time,
    look_both_ways,
    resemble_tokens,
    show_noise,
    start_copying,
    tell_masks_apart,
    with_dropout,
)
from multimdm.models.expand import noise_offsets, token_offsets
from multimdm.models.llada_masks import RESERVED, appended_rows, expand_llada, reserved_rows
from multimdm.models.lora import attach
from multimdm.process import AnyProcess, MultiMask
from multimdm.training.schema import AdaptRecipe, CoupleRecipe, PretrainRecipe
from multimdm.training.step_plan import derive

_VOCABULARY_MULTIPLE = 64
"""The vocabulary of a new LLaDA is a multiple of this: what is left over is in reserve, as in the published ones."""


def new_dit(
    recipe: PretrainRecipe,
    process: AnyProcess | None,
    vocab_size: int,
    length: int,
    suppressed: tuple[int, ...] = (),
    device: str = "cpu",
) -> DiT:
    """A DiT with random weights over these tokens."""
    shape = recipe.network.shape
    config = DiTConfig(
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
    torch.manual_seed(derive(recipe.train.seed, "weights"))
    with torch.device(device):
        network = DiT(config)
    if recipe.network.embedding_std is not None:
        for table in (network.vocab_embed, network.position_embed):
            if table is not None:
                torch.nn.init.normal_(table.embedding, std=recipe.network.embedding_std)
    if recipe.network.copying_start and _has_contents(network):
        start_copying(network)
    return network


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


def new_llada(recipe: PretrainRecipe, tokens: int, length: int, device: str = "cpu") -> LLaDA:
    """A LLaDA with random weights; its masks lie behind the tokens, inside the vocabulary."""
    shape = recipe.network.shape
    num_masks = recipe.process.num_masks if recipe.system == "multimdm" else 1
    V = -(-(tokens + num_masks) // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE
    config = LLaDAConfig(
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
    torch.manual_seed(derive(recipe.train.seed, "weights"))
    network = LLaDA(config, device=device).initialise()
    if recipe.network.embedding_std is not None:
        torch.nn.init.normal_(network.wte.weight, std=recipe.network.embedding_std)
    return network


def adapted_dit(recipe: AdaptRecipe, network: DiT, process: MultiMask) -> DiT:
    """One mask made many; masks that are there already stay. While they are copies, it gives the logits it gave."""
    if network.config.num_masks == 1:
        network = expand_masks(network, process.num_masks)
        if recipe.mask_rows != "copies" and process.num_masks > 1 and _has_contents(network):
            if recipe.mask_rows == "noise":
                network = tell_masks_apart(network, recipe.row_scale, derive(recipe.train.seed, "mask noise"))
            else:
                network = resemble_tokens(network, process.assignment, recipe.row_scale)
    # Masks of init that fade go on fading, by the schedule that is theirs from now on.
    if (recipe.mask_fade and process.num_masks > 1) or network.config.mask_fade is not None:
        require(
            process.schedule.kind == "linear",
            "process.alpha must be linear where masks fade (mask_fade): they do so by (1 - t) ** rho; got "
            f"{process.schedule.kind}",
        )
        network = fade_masks(network, process.schedule.rho)
    return _seeing(network, recipe.conditioning, recipe.dropout)


def adapted_llada(
    recipe: AdaptRecipe, network: LLaDA, process: MultiMask, rows: tuple[int, ...], adapter: Adapter
) -> LLaDA:
    """The network with an adapter, and masks on these rows; while they are copies, it gives the logits it gave."""
    network = expand_llada(network, rows, _mask_offsets(recipe, network, process))
    return attach(network, adapter, derive(recipe.train.seed, "lora"))


def adapter_of(recipe: AdaptRecipe, base: str = "", base_digest: str = "") -> Adapter:
    """What the recipe asks for, on the weights of a base."""
    lora = recipe.lora
    return Adapter(rank=lora.rank, alpha=lora.alpha, dropout=lora.dropout, base=base, base_digest=base_digest)


def _mask_offsets(recipe: AdaptRecipe, network: LLaDA, process: MultiMask) -> Tensor | None:
    """What makes the masks differ, if the recipe asks for it; one mask alone differs from none."""
    if recipe.mask_rows == "copies" or process.num_masks == 1 or not _has_contents(network):
        return None
    table, seed = network.wte.weight.detach(), derive(recipe.train.seed, "mask noise")
    copies = table[list(network.config.mask_rows)].expand(process.num_masks, -1)
    if recipe.mask_rows == "noise":
        return noise_offsets(copies, recipe.row_scale, seed)
    return token_offsets(copies, table[: process.vocab_size], process.assignment, recipe.row_scale)


def llada_mask_rows(config: LLaDAConfig, recipe: AdaptRecipe, tokens: int) -> tuple[int, ...]:
    """Where the masks are to lie, beside so many tokens."""
    M, lora = recipe.process.num_masks, recipe.lora
    if lora.rows == "appended":
        return appended_rows(config, M)
    # Ids that the tokenizer does not have are in reserve too.
    spare = lora.spare or RESERVED.get(config.vocab_size) or range(tokens, config.vocab_size)
    return reserved_rows(config, M, list(spare))


def for_tied_noise(recipe: CoupleRecipe, network: Backbone) -> Backbone:
    """A network that sees what the recipe says: several masks that differ, noise, time."""
    if not isinstance(network, DiT):
        require(
            network.config.num_masks > 1,
            f"{recipe.init} is a LLaDA network with one mask: give it several by multimdm adapt first",
        )
        require(
            recipe.conditioning == "none" and recipe.dropout is None and not recipe.noise_shown,
            f"conditioning must be none, noise_shown false and dropout left out: {recipe.init} is a LLaDA network, "
            "which has no place for them",
        )
        return network
    require(
        network.config.mask_fade is None,
        f"the masks of {recipe.init} fade with time (mask_fade), and noise that is kept tells as much at all times: "
        "begin with a model of one mask, or with an autoregressive one",
    )
    if network.config.causal:
        network = look_both_ways(network)
    new_masks = network.config.num_masks == 1
    if new_masks:
        if recipe.process is None or recipe.process.num_masks == 1:
            raise ValueError(
                f"process.num_masks must be at least 2: {recipe.init} has one mask, and noise of one mask tells nothing"
            )
        network = expand_masks(network, recipe.process.num_masks)
    require(
        recipe.noise_shown or not network.config.noise_rows,
        f"noise_shown must be true: the network of {recipe.init} is shown the noise already",
    )
    network = show_noise(network) if recipe.noise_shown else network
    network = _seeing(network, recipe.conditioning, recipe.dropout)
    if new_masks and recipe.mask_codes > 0 and _has_contents(network):
        network = code_masks(network, recipe.mask_codes, derive(recipe.train.seed, "mask codes"))
    return network


def _seeing(network: DiT, conditioning: Literal["sigma", "time", "none"], dropout: float | None) -> DiT:
    """The network with a sense of time, if it is to have one, and another dropout, if that is asked for."""
    network = network if conditioning == "none" else gate_time(network, conditioning)
    return network if dropout is None else with_dropout(network, dropout)


def own_copy(network: Backbone) -> Backbone:
    """A network of its own, but for the frozen weights under an adapter, which never change."""
    frozen = {id(x): x for x in network.parameters() if not x.requires_grad}
    return copy.deepcopy(network, frozen)


def _has_contents(network: Backbone) -> bool:
    return not next(network.parameters()).is_meta
