"""Which states a network with kept noise is trained on: those that its samplers will meet.

Random masks are what the process says. But one call begins with everything hidden; a sampler that goes by confidence
leaves hidden what it is least sure of; and one that rewrites looks at a whole draft of its own. Each of them is a share
of the batch. On top of it, some sequences of every kind have a beginning that is given, as that of a prompt.
"""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm.objectives.base import Batch, Network
from multimdm.objectives.paths import TiedPath
from multimdm.process import Streams
from multimdm.process.checks import require
from multimdm.process.precision import widened


class Kind(IntEnum):
    """Of a state."""

    MASKS = 0
    """Every position is hidden by itself, with probability 1 - alpha_t."""
    SUREST = 1
    """The tokens stand at the positions that the network, seeing noise alone, is surest of; the rest is hidden.

    They are the text's own, not the network's guesses: a sampler never takes back what it has revealed, so that the
    rest has to fit it, right or wrong. Trained on wrong tokens and what should have stood beside them, a network learns
    to trust neither."""
    DRAFTS = 2
    """The network's guesses from noise stand everywhere, and all are to be predicted again."""
    AT_ONE = 3
    """Everything is hidden."""


@dataclass(frozen=True)
class Shares:
    """Of the batch, for each kind but random masks, which are the rest."""

    at_one: float = 0.25
    surest: float = 0.0
    drafts: float = 0.0
    prompts: float = 0.0
    """Of the sequences of every kind: those whose beginning is given."""

    def __post_init__(self) -> None:
        shares = {field.name: getattr(self, field.name) for field in fields(self)}
        require(
            min(shares.values()) >= 0 and self.masks >= -1e-9 and self.prompts <= 1,
            f"the shares at_one, surest and drafts must not exceed 1 together, nor prompts by itself; got "
            f"{', '.join(f'{name} {share:g}' for name, share in shares.items())}",
        )

    @property
    def masks(self) -> float:
        """The rest."""
        return 1 - self.at_one - self.surest - self.drafts

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


class _Guess(NamedTuple):
    """What the network makes of noise (and a given beginning), where it was asked."""

    token: Int64[Tensor, "B L"]
    """The most probable ones; noise where none was asked for."""
    rank: Int64[Tensor, "B L"]
    """0 for the position that it is surest of; positions that are not free come last."""


def draw_states(network: Network, path: TiedPath, batch: Batch, shares: Shares) -> States:
    """One state for every sequence of the batch; one more call of the network, without gradient, for its guesses."""
    kind, t = shares.divide(batch.times.to(batch.ids.device))
    free = torch.ones_like(batch.ids, dtype=torch.bool) if batch.valid is None else batch.valid
    x_t, given = path.corrupt(batch, t), None
    if shares.prompts > 0:
        given = _beginnings(batch.generator, free, shares.prompts)
        free = free & ~given
    if shares.surest > 0 or shares.drafts > 0:
        noise = path.end if given is None else torch.where(given, batch.ids, path.end)
        guessing = (kind == Kind.SUREST) | (kind == Kind.DRAFTS)
        guess = _guess(network, path, batch, noise, given, free, guessing)
        visible = ((1 - t) * free.sum(1)).round()
        surest = torch.where(guess.rank < visible[:, None], batch.ids, path.end)
        x_t = torch.where((kind == Kind.SUREST)[:, None], surest, x_t)
        x_t = torch.where((kind == Kind.DRAFTS)[:, None], guess.token, x_t)
    if given is not None:
        x_t = torch.where(given, batch.ids, x_t)
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
    path: TiedPath,
    batch: Batch,
    noise: Int64[Tensor, "B L"],
    given: Bool[Tensor, "B L"] | None,
    free: Bool[Tensor, "B L"],
    guessing: Bool[Tensor, " B"],
) -> _Guess:
    """For some of the sequences; for the others noise, and no position before another.

    Where no sequence is to be guessed the network is still run, on one, since other ranks may be waiting.
    """
    rows = guessing.nonzero()[:, 0] if bool(guessing.any()) else guessing.new_zeros(1, dtype=torch.long)
    wanted, valid = free[rows], None if batch.valid is None else batch.valid[rows]

    def reduce(logits: Tensor, _: slice) -> tuple[Tensor, Tensor]:
        most = widened(logits).softmax(-1).max(-1)
        return most.indices, most.values

    shown = TiedPath(path.process, path.end[rows]).shown(noise[rows], None if given is None else given[rows])
    ones = torch.ones(len(rows), dtype=torch.float64, device=noise.device)
    token, sure = network(shown, ones, wanted, valid, reduce)
    confidence = torch.full(wanted.shape, -1.0, dtype=sure.dtype, device=sure.device).masked_scatter(wanted, sure)
    rank = confidence.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    tokens = noise.index_copy(0, rows, noise[rows].masked_scatter(wanted, token))
    return _Guess(tokens, torch.zeros_like(noise).index_copy(0, rows, rank))
