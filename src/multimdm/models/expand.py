"""From one mask to many, and from a constant to a sense of time: the warm start of MultiMDM-cont.

Sec. 3.2, continual adaptation. The multi-mask posterior depends on t, and MDLM's networks do not see it.

Something is added to the copies of a mask's row, so that the new masks differ from the first step on. Copies give the
same predictions, and a network has to find out that they are different things, let alone what they mean. Noise makes
them different. The embeddings of the tokens for which a mask is designated also say what it means: a network that knows
its tokens can make something of their mean before it has learnt anything of masks.

Shapes: V tokens, M masks, rows of width d.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from multimdm._checks import check_integer, require
from multimdm.models.config import DiTConfig
from multimdm.models.dit import DiT


def expand_masks(network: DiT, num_masks: int) -> DiT:
    """A network with `num_masks` masks, each a copy of the one it had: every mask then gives the same logits.

    The given network is left as it is.
    """
    check_integer("num_masks", num_masks, 1)
    config = network.config
    require(config.num_masks == 1, f"only a network with one mask can be expanded; this one has {config.num_masks}")
    V = config.vocab_size

    def copy_mask(state: dict[str, Tensor]) -> None:
        rows = state["vocab_embed.embedding"]
        state["vocab_embed.embedding"] = torch.cat([rows[:V], rows[V:].expand(num_masks, -1)])

    return _rebuilt(network, replace(config, num_masks=num_masks), copy_mask)


def show_noise(network: DiT) -> DiT:
    """A network that can be shown x_1 beside x_t: every mask gets a second row, zero at first, so that nothing changes.

    The given network is left as it is; one that has such rows already is copied unchanged.
    """
    config = network.config
    if config.noise_rows:
        return _rebuilt(network, config, lambda state: None)

    def add_rows(state: dict[str, Tensor]) -> None:
        rows = state["vocab_embed.embedding"]
        state["vocab_embed.embedding"] = torch.cat([rows, torch.zeros_like(rows[-config.num_masks :])])

    return _rebuilt(network, replace(config, noise_rows=config.num_masks), add_rows)


def tell_masks_apart(network: DiT, scale: float, seed: int) -> DiT:
    """A network whose masks differ a little: Gaussian noise on their rows, `scale` times as large as their entries.

    Copies of one mask give the same predictions, and what is symmetric stays so where nothing else tells masks apart.
    The given network is left as it is.
    """
    return _moved(network, lambda masks, tokens: noise_offsets(masks, scale, seed))


def resemble_tokens(network: DiT, assignment: Int64[Tensor, " V"], scale: float) -> DiT:
    """A network whose masks are a little like their tokens: the means of these tokens' rows are added to the masks'.

    The given network is left as it is.
    """
    return _moved(network, lambda masks, tokens: token_offsets(masks, tokens, assignment, scale))


def code_masks(network: DiT, scale: float, seed: int) -> DiT:
    """A network whose masks say where in [0, 1) their buckets lie (`process/quantile.py`): codes on all their rows.

    The code of bucket k holds sines and cosines of pi 2^j (k + 1/2) / M, j = 0, 1, ... up to the frequency at which
    neighbours differ by a quarter of a turn, mapped to the width of the network by a random matrix and made `scale`
    times as large as the entries of the tokens' rows. It is added to the mask's row and to that for noise. What has
    no such meaning must find it, and for hundreds of steps does not. The given network is left as it is.
    """
    V = network.config.vocab_size
    M = network.config.num_masks
    generator = torch.Generator().manual_seed(seed)

    def add_codes(state: dict[str, Tensor]) -> None:
        rows = state["vocab_embed.embedding"].clone()
        codes = bucket_codes(M)
        spread = torch.randn((codes.shape[1], rows.shape[1]), generator=generator, dtype=codes.dtype)
        codes = codes @ spread
        codes = codes * (rows[:V].double().square().mean() / codes.square().mean()).sqrt().cpu()
        for first in range(V, len(rows), M):
            rows[first : first + M] += (scale * codes).to(rows)
        state["vocab_embed.embedding"] = rows

    return _rebuilt(network, network.config, add_codes)


def bucket_codes(num_masks: int) -> Float64[Tensor, "M codes"]:
    """sin and cos of pi 2^j (k + 1/2) / M for every bucket k."""
    middle = (torch.arange(num_masks, dtype=torch.float64) + 0.5) / num_masks
    frequencies = torch.pi * 2.0 ** torch.arange(max(5, math.ceil(math.log2(num_masks))), dtype=torch.float64)
    angles = middle[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def look_both_ways(network: DiT) -> DiT:
    """An autoregressive network as a masked one: it attends to all positions, and its start symbol becomes its mask.

    What it knows of words and of how they follow each other is a start; predictions must be learnt anew. The given
    network is left as it is.
    """
    require(network.config.causal, "only an autoregressive network can be made to look both ways; this one does")
    return _rebuilt(network, replace(network.config, causal=False), lambda state: None)


def gate_time(network: DiT, conditioning: Literal["sigma", "time"] = "sigma") -> DiT:
    """A network that is conditioned on time through a gate at zero: it gives the logits it gave without.

    The given network is left as it is; one that is conditioned on time already is copied unchanged.
    """
    config = network.config
    if config.conditioning != "none":
        return _rebuilt(network, config, lambda state: None)

    def add_gate(state: dict[str, Tensor]) -> None:
        state["sigma_map.gate"] = torch.zeros_like(state["sigma_map.mlp.2.bias"])

    return _rebuilt(network, replace(config, conditioning=conditioning, time_gate=True), add_gate)


def fade_masks(network: DiT, rho: float) -> DiT:
    """The same weights, where masks are worth (1 - t)^rho, which is beta_t: all alike at t = 1, apart at t = 0.

    While the rows of all masks are equal, it gives the logits it gave. The given network is left as it is.
    """
    return _rebuilt(network, replace(network.config, mask_fade=rho), lambda state: None)


def with_dropout(network: DiT, dropout: float) -> DiT:
    """The same weights with another dropout."""
    return _rebuilt(network, replace(network.config, dropout=dropout), lambda state: None)


def _moved(network: DiT, offsets: Callable[[Tensor, Tensor], Tensor]) -> DiT:
    """The network with something added to the rows of masks, a function of these rows and of the tokens'."""
    V = network.config.vocab_size

    def add(state: dict[str, Tensor]) -> None:
        rows = state["vocab_embed.embedding"].clone()
        rows[V:] += offsets(rows[V:], rows[:V])
        state["vocab_embed.embedding"] = rows

    return _rebuilt(network, network.config, add)


def _rebuilt(network: DiT, config: DiTConfig, change: Callable[[dict[str, Tensor]], None]) -> DiT:
    """A new network with another configuration and the old one's tensors, changed."""
    state = dict(network.state_dict())
    rows = state["vocab_embed.embedding"]
    change(state)
    with torch.device(rows.device):
        rebuilt = DiT(config).to(rows.dtype)
    rebuilt.load_state_dict(state)
    return rebuilt.train(network.training)


def noise_offsets(copies: Float[Tensor, "M d"], scale: float, seed: int) -> Float[Tensor, "M d"]:
    """Gaussian noise, `scale` times as large as the entries of the copies."""
    noise = torch.randn(copies.shape, generator=torch.Generator().manual_seed(seed)).to(copies)
    return scale * _size(copies) * noise


def token_offsets(
    copies: Float[Tensor, "M d"], tokens: Float[Tensor, "V d"], assignment: Int64[Tensor, " V"], scale: float
) -> Float[Tensor, "M d"]:
    """The mean of the rows of each mask's tokens, less the mean of all rows, made as large as that noise would be.

    One factor serves all masks, so that a mask whose tokens are alike is moved further than others. A single mask stays
    where it is.
    """
    if len(copies) == 1:
        return torch.zeros_like(copies)
    sums = torch.zeros(copies.shape, dtype=torch.float64, device=tokens.device)
    sums.index_add_(0, assignment.to(tokens.device), tokens.double())
    counts = torch.bincount(assignment, minlength=len(copies)).to(sums)
    means = sums / counts[:, None] - tokens.double().mean(0)
    return (scale * _size(copies).double() / _size(means) * means).to(copies)


def _size(rows: Tensor) -> Tensor:
    """Root mean square of the entries."""
    return rows.square().mean().sqrt()
