"""Blocks of positions that are made one after the other, and the time at which each of them is.

Shapes: B sequences of L positions.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from multimdm.process import Process, Schedule
from multimdm.samplers.batch import Batch


class Blocks(NamedTuple):
    """The blocks of every sequence, counted from its first free position."""

    index: Int64[Tensor, "B L"]
    number: Int64[Tensor, " B"]


class Front(NamedTuple):
    """The current block of every sequence."""

    hidden: Bool[Tensor, "B L"]
    """All that is still to be made."""
    candidates: Bool[Tensor, "B L"]
    """What of it lies in the block."""
    size: Int64[Tensor, " B"]
    """Free positions of the block."""
    block: Int64[Tensor, " B"]
    number: Int64[Tensor, " B"]
    """How many blocks there are."""
    t: Float[Tensor, " B"]
    """The time at which the process masks as large a share of a text as is masked of the block."""


def front_of(process: Process, batch: Batch, block_length: int | None = None) -> Front:
    """The first block of every sequence that has something hidden; all is one block unless a length is given."""
    hidden = process.active(batch.x) & batch.free
    blocks = blocks_of(batch.free, block_length)
    # the first block with a hidden position, and what of it is free and hidden
    current = blocks.index.masked_fill(~hidden, blocks.index.shape[1]).amin(1)
    here = (blocks.index == current[:, None]) & batch.free
    candidates = hidden & here
    size = here.sum(1)
    # 1 - alpha_t = the share of the block that is hidden
    t = time_of_share(process.schedule, candidates.sum(1) / size.double())
    return Front(hidden, candidates, size, current, blocks.number, t)


def blocks_of(free: Bool[Tensor, "B L"], block_length: int | None) -> Blocks:
    """Blocks of positions; what comes before the first free position, such as a prompt, belongs to none (index -1)."""
    L = free.shape[1]
    size = L if block_length is None else block_length
    place = torch.arange(L, device=free.device).expand_as(free)
    first = place.masked_fill(~free, L).amin(1, keepdim=True)
    index = torch.where(place < first, -1, (place - first) // size)
    return Blocks(index, index.masked_fill(~free, -1).amax(1) + 1)


def time_of_share(schedule: Schedule, share: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """The t with 1 - alpha_t = share: the time at which the process masks this share of the positions."""
    if schedule.kind == "linear":
        return share
    return (4 / math.pi * torch.asin(torch.sqrt(share / 2))).clamp_max(1.0)  # 1 - cos(pi t / 2) = 2 sin^2(pi t / 4)
