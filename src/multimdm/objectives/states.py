"""Which states a network with kept noise is trained on: those that its samplers will meet.

Random masks are what the process says. But one call begins with everything hidden; a sampler that goes by confidence
leaves hidden what it is least sure of; one that rewrites looks at a whole draft of its own; and a prompt is a beginning
that is given. Each of them is a share of the batch.
"""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm.objectives.base import Batch, Network, both
from multimdm.objectives.paths import TiedPath
from multimdm.process.checks import require
from multimdm.process.precision import widened


class Kind(IntEnum):
    """Of a state."""

    MASKS = 0
    """Every position is hidden by itself, with probability 1 - alpha_t."""
    PROMPTS = 1
    """The first positions are given, with no noise behind them, and the rest is hidden."""
    SUREST = 2
    """The tokens stand at the positions that the network, seeing noise alone, is surest of; the rest is hidden.

    They are the text's own, not the network's guesses: a sampler never takes back what it has revealed, so that the
    rest has to fit it, right or wrong. Trained on wrong tokens and what should have stood beside them, a network learns
    to trust neither."""
    DRAFTS = 3
    """Its own guesses stand everywhere, and all are to be predicted again."""
    AT_ONE = 4
    """Everything is hidden."""


@dataclass(frozen=True)
class Shares:
    """Of the batch, for each kind but random masks, which are the rest."""

    at_one: float = 0.25
    surest: float = 0.0
    drafts: float = 0.0
    prompts: float = 0.0

    def __post_init__(self) -> None:
        shares = {field.name: getattr(self, field.name) for field in fields(self)}
        require(
            min(shares.values()) >= 0 and self.masks >= -1e-9,
            f"the shares {', '.join(f'{name} {share:g}' for name, share in shares.items())} must not exceed 1 together",
        )

    @property
    def masks(self) -> float:
        """The rest."""
        return 1 - self.at_one - self.surest - self.drafts - self.prompts

    def of(self, kind: Kind) -> float:
        """The share of a kind."""
        return max(0.0, getattr(self, kind.name.lower()))

    def divide(self, u: Float64[Tensor, " B"]) -> tuple[Int64[Tensor, " B"], Float64[Tensor, " B"]]:
        """The kind of every sequence, and its time, by numbers that are spread evenly over (0, 1).

        Numbers within the share of a kind are spread over (0, 1] again; whole drafts are at t = 0, pure noise at 1.
        """
        kind, t, first = torch.zeros_like(u, dtype=torch.long), torch.ones_like(u), 0.0
        for each in Kind:
            share = self.of(each)
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


def draw_states(network: Network, path: TiedPath, batch: Batch, shares: Shares) -> States:
    """One state for every sequence of the batch; one more call of the network, without gradient, for its guesses."""
    kind, t = shares.divide(batch.times.to(batch.ids.device))
    x_t, given = path.corrupt(batch, t), None
    # A sampler keeps places free of padding: shares are of the tokens of a text.
    length = torch.full_like(kind, batch.ids.shape[1]) if batch.valid is None else batch.valid.sum(1)
    if shares.prompts > 0:
        place = torch.arange(batch.ids.shape[1], device=t.device)
        given = (kind == Kind.PROMPTS)[:, None] & (place < _visible(t, length)[:, None])
        hidden = torch.where(given, batch.ids, path.end)
        x_t = torch.where((kind == Kind.PROMPTS)[:, None], hidden, x_t)
    asked = both(path.process.active(x_t), batch.valid)
    if shares.surest > 0 or shares.drafts > 0:
        guessing = (kind == Kind.SUREST) | (kind == Kind.DRAFTS)
        guess = _guess(network, path, batch, guessing)
        revealed = torch.where(guess.rank < _visible(t, length)[:, None], batch.ids, path.end)
        x_t = torch.where((kind == Kind.SUREST)[:, None], revealed, x_t)
        x_t = torch.where((kind == Kind.DRAFTS)[:, None], guess.token, x_t)
        again = both((kind == Kind.DRAFTS)[:, None].expand_as(x_t), batch.valid)
        asked = both(path.process.active(x_t), batch.valid) | again
    return States(x_t, t, kind, asked, given)


def _visible(t: Tensor, length: Tensor) -> Int64[Tensor, " B"]:
    """How many positions are not hidden at t."""
    return ((1 - t) * length).round().long()


class _Guess(NamedTuple):
    """What the network makes of noise alone, where it was asked; at other sequences and in padding it means nothing."""

    token: Int64[Tensor, "B L"]
    """The most probable ones; noise in padding."""
    rank: Int64[Tensor, "B L"]
    """0 for the position that it is surest of; padding comes last."""


@torch.no_grad()
def _guess(network: Network, path: TiedPath, batch: Batch, guessing: Bool[Tensor, " B"]) -> _Guess:
    """For some of the sequences; for the others noise, and no position before another.

    Where no sequence is to be guessed the network is still run, on one, since other ranks may be waiting.
    """
    rows = guessing.nonzero()[:, 0] if bool(guessing.any()) else guessing.new_zeros(1, dtype=torch.long)
    end = path.end[rows]
    valid = None if batch.valid is None else batch.valid[rows]
    wanted = torch.ones_like(end, dtype=torch.bool) if valid is None else valid

    def reduce(logits: Tensor, _: slice) -> tuple[Tensor, Tensor]:
        most = widened(logits).softmax(-1).max(-1)
        return most.indices, most.values

    ones = torch.ones(len(rows), dtype=torch.float64, device=end.device)
    token, sure = network(TiedPath(path.process, end).shown(end), ones, wanted, valid, reduce)
    confidence = torch.full(end.shape, -1.0, dtype=sure.dtype, device=end.device).masked_scatter(wanted, sure)
    rank = confidence.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    tokens = path.end.index_copy(0, rows, end.masked_scatter(wanted, token))
    return _Guess(tokens, torch.zeros_like(path.end).index_copy(0, rows, rank))
