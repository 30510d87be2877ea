"""Which states a network with kept noise is trained on: those that its samplers will meet.

Random masks are what the process says. But one call begins with everything hidden; a sampler that goes by confidence
leaves hidden what it is least sure of; and one that rewrites looks at a whole draft of its own. Each of them is a share
of the batch. On top of it, some sequences of every kind have a beginning that is given, as that of a prompt.

Shapes: B sequences of L positions, x_t and x_1 [B, L], t and the kinds [B].
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm.objectives.base import Batch, Network, asked_sequences
from multimdm.objectives.settings import Kind, Shares
from multimdm.process import Path, Streams
from multimdm.process.places import widened


def divide(shares: Shares, u: Float64[Tensor, " B"]) -> tuple[Int64[Tensor, " B"], Float64[Tensor, " B"]]:
    """The kind of every sequence, and its time, by numbers that are spread evenly over (0, 1).

    Numbers within the share of a kind are spread over (0, 1] again; whole drafts are at t = 0, pure noise at 1.
    """
    kind = torch.zeros_like(u, dtype=torch.long)
    t = torch.ones_like(u)
    first = 0.0
    for each in Kind:
        share = shares.of(each)
        # u in [first, first + share) means this kind, and (u - first) / share is uniform again
        here = (u >= first) & (share > 0)
        kind = torch.where(here, each.value, kind)
        within = ((u - first) / share).clamp_max(1.0) if share > 0 else t
        fixed = {Kind.DRAFTS: 0.0, Kind.AT_ONE: 1.0}.get(each)
        t = torch.where(here, within if fixed is None else torch.full_like(u, fixed), t)
        first += share
    return kind, t


@dataclass(frozen=True)
class States:
    """What the network is shown and asked."""

    x_t: Int64[Tensor, "B L"]
    t: Float64[Tensor, " B"]
    kind: Int64[Tensor, " B"]
    asked: Bool[Tensor, "B L"]
    """The positions whose tokens are to be predicted."""
    given: Bool[Tensor, "B L"] | None
    """Tokens that are given, without the noise behind them."""


class _Guess(NamedTuple):
    """What the network makes of noise (and a given beginning), where it was asked."""

    token: Int64[Tensor, "B L"]
    """The most probable ones; noise where none was asked for."""
    rank: Int64[Tensor, "B L"]
    """0 for the position that it is surest of; positions that are not free come last."""


def draw_states(network: Network, path: Path, batch: Batch, shares: Shares) -> States:
    """One state for every sequence of the batch; one more call of the network, without gradient, for its guesses."""
    kind, t = divide(shares, batch.times.to(batch.ids.device))
    free = torch.ones_like(batch.ids, dtype=torch.bool) if batch.valid is None else batch.valid
    x_t = path.corrupt(batch.ids, t, batch.generator)
    given = None
    if shares.prompts > 0:
        given = _beginnings(batch.generator, free, shares.prompts)
        free = free & ~given
    if shares.surest > 0 or shares.drafts > 0:
        assert path.x_1 is not None
        # what the network guesses from x_1 and the beginning that is given
        noise = path.x_1 if given is None else torch.where(given, batch.ids, path.x_1)
        guessing = (kind == Kind.SUREST) | (kind == Kind.DRAFTS)
        guess = _guess(network, path, batch, noise, given, free, guessing)
        # (1 - t) of the positions show: the surest ones, with the text's own tokens
        visible = ((1 - t) * free.sum(1)).round()
        surest = torch.where(guess.rank < visible[:, None], batch.ids, path.x_1)
        x_t = torch.where((kind == Kind.SUREST)[:, None], surest, x_t)
        x_t = torch.where((kind == Kind.DRAFTS)[:, None], guess.token, x_t)
    if given is not None:
        x_t = torch.where(given, batch.ids, x_t)
    # hidden positions are asked for, and all of a draft
    asked = free & (path.process.active(x_t) | (kind == Kind.DRAFTS)[:, None])
    return States(x_t, t, kind, asked, given)


def _beginnings(generator: Streams, free: Bool[Tensor, "B L"], share: float) -> Bool[Tensor, "B L"]:
    """The first positions of some of the sequences, any number of them that leaves one to be made."""
    u = generator.uniform((len(free), 2), free.device)
    number = (u[:, 1] * free.sum(1)).long()
    place = torch.arange(free.shape[1], device=free.device)
    return (u[:, 0] < share)[:, None] & (place < number[:, None])


@torch.no_grad()
def _guess(
    network: Network,
    path: Path,
    batch: Batch,
    noise: Int64[Tensor, "B L"],
    given: Bool[Tensor, "B L"] | None,
    free: Bool[Tensor, "B L"],
    guessing: Bool[Tensor, " B"],
) -> _Guess:
    """The network's guesses for some of the sequences; for the others noise, and no position before another.

    Where no sequence is to be guessed the network is still run, on one, since other ranks may be waiting.
    """
    rows = asked_sequences(guessing)
    wanted = free[rows]
    valid = None if batch.valid is None else batch.valid[rows]

    def reduce(logits: Tensor, _: slice) -> tuple[Tensor, Tensor]:
        most = widened(logits).softmax(-1).max(-1)
        return most.indices, most.values

    shown = path.at(rows).shown(noise[rows], None if given is None else given[rows])
    ones = torch.ones(len(rows), dtype=torch.float64, device=noise.device)
    token, sure = network(shown, ones, wanted, valid, reduce)
    # the rank of a position is where it stands in the order, which the second argsort tells
    confidence = torch.full(wanted.shape, -1.0, dtype=sure.dtype, device=sure.device).masked_scatter(wanted, sure)
    rank = confidence.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    tokens = noise.index_copy(0, rows, noise[rows].masked_scatter(wanted, token))
    return _Guess(tokens, torch.zeros_like(noise).index_copy(0, rows, rank))
