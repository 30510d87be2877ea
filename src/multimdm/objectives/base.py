"""What every objective is given and what it gives back, and the loss of a prediction position by position.

Training sums the terms of `Rows`, a NELBO groups them by sequence.

Shapes: B sequences of L positions; N of these have a loss, packed in row-major order; a chunk of the network's head
has n packed rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from multimdm.process import LossTerms, Path, Process, Streams

Network = Callable[..., Any]
"""`network(x_t, t, positions, valid, reduce)`, as DESIGN's contract has it; objectives know no class of network."""

Where = tuple[Int64[Tensor, " N"], ...]
"""Packed positions: their sequences, and their places in these."""


@dataclass(frozen=True)
class Batch:
    """Clean sequences, and where their randomness comes from."""

    ids: Int64[Tensor, "B L"]
    valid: Bool[Tensor, "B L"] | None
    """What is not padding; None if nothing is."""
    times: Float64[Tensor, " B"]
    """Numbers in (0, 1), evenly spread over the global batch."""
    generator: Streams
    """One stream per sequence, so that the noise of a sequence does not depend on how the batch is divided."""
    step: int = 0
    """Updates that were made before."""
    steps: int = 1
    """Updates that training takes in all."""
    x_1: Int64[Tensor, "B L"] | None = None
    """The noise of each sequence, where it is tied to the text."""
    weight: Float64[Tensor, " B"] | None = None
    """What the loss of each sequence is multiplied by, for times that were not drawn evenly; None for 1."""
    given: Bool[Tensor, "B L"] | None = None
    """The prompts: seen as they are, never noised and never asked for; None if nothing is given."""

    def asked(self, active: Bool[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
        """The active positions that have a loss: those that are neither padding nor given."""
        active = both(active, self.valid)
        return active if self.given is None else active & ~self.given

    def keep(self, x: Int64[Tensor, "B L"]) -> Int64[Tensor, "B L"]:
        """The state x with the given tokens in their places."""
        return x if self.given is None else torch.where(self.given, self.ids, x)

    def path(self, process: Process) -> Path:
        """The paths to the texts' own x_1 or, without one, to any x_1, which is drawn if the process keeps it."""
        if self.x_1 is None:
            return process.path_to_prior(self.ids.shape, self.generator, self.ids.device)
        return process.path_to(self.x_1)

    @property
    def progress(self) -> float:
        """The share of training that is done, 0 to 1: what curricula go by."""
        return self.step / self.steps


TIMES = 10
"""The number of equal parts of (0, 1) for which losses are recorded one by one."""


class Sums(NamedTuple):
    """The value of an objective over a batch: sums over tokens, in nats."""

    loss: Tensor
    """What is minimised; it can be differentiated."""
    terms: dict[str, Tensor]
    """What it is made of, without gradient and without the weights of a curriculum."""
    by_time: Tensor | None = None
    """[2, TIMES]: what the terms add up to, and tokens, by the times of their sequences, in tenths of (0, 1)."""


@runtime_checkable
class Objective(Protocol):
    """A sum over the tokens of a batch that training makes small."""

    def __call__(self, network: Network, batch: Batch) -> Sums:
        """Run the network on the batch."""
        ...


@runtime_checkable
class Distillation(Protocol):
    """An objective that takes its targets from a teacher, a network that is not trained but replaced now and then."""

    @property
    def teacher_calls(self) -> int:
        """How often a step runs the teacher."""
        ...

    def taught_by(self, teacher: Network) -> Objective:
        """The objective with this teacher."""
        ...

    def next_teacher(self, step: int, steps: int) -> float:
        """How far the teacher moves to the student after this step: 0 stays, 1 copies; between, a moving average."""
        ...

    def settings_at(self, step: int, steps: int) -> dict[str, float]:
        """What changes in the course of training, for the records: step size, round."""
        ...


@dataclass(frozen=True)
class Rows:
    """The positions of a batch that have a loss."""

    shown: Any
    """What the network is shown of the batch: ids [B, L], or a mixture of them."""
    t: Float[Tensor, " B"] | None
    """None for a network without time."""
    positions: Bool[Tensor, "B L"]
    valid: Bool[Tensor, "B L"] | None
    where: Where
    """The positions as indices."""
    terms: Callable[[Float[Tensor, "n V"], slice], LossTerms]
    """The loss of some of the packed rows, given the network's logits there."""

    def call(self, network: Network, reduce: Callable[[Tensor, slice], Any]) -> Any:
        """Run the network: no [B, L, V] tensor is made, `reduce` is called on chunks of rows, differentiated each."""
        return network(self.shown, self.t, self.positions, self.valid, reduce)

    def by_sequence(self, network: Network) -> Float64[Tensor, "2 B"]:
        """Both terms, summed over the positions of each sequence."""

        def reduce(logits: Tensor, rows: slice) -> Tensor:
            terms = self.terms(logits, rows)
            return torch.stack([terms.reconstruction, terms.identification], dim=1)

        terms = self.call(network, reduce).double()
        return terms.new_zeros((len(self.positions), 2)).index_add(0, self.where[0], terms).T


def rows_on(
    path: Path,
    x_0: Int64[Tensor, "B L"],
    x_t: Int64[Tensor, "B L"],
    t: Float[Tensor, " B"],
    positions: Bool[Tensor, "B L"],
    valid: Bool[Tensor, "B L"] | None,
    shown: Any = None,
) -> Rows:
    """The losses at states x_t of a path; the network is shown x_t unless something else is given."""
    where = positions.nonzero(as_tuple=True)  # once: on a GPU it waits for the positions
    packed = path.at(where)
    clean = x_0[where]
    state = x_t[where]
    time = t[where[0]]

    def terms(logits: Tensor, rows: slice) -> LossTerms:
        return packed.at(rows).loss(logits, clean[rows], state[rows], time[rows])

    return Rows(path.shown(x_t) if shown is None else shown, t, positions, valid, where, terms)


def sums_by_time(batch: Batch, loss: Float64[Tensor, " N"], sequence: Int64[Tensor, " N"]) -> Tensor:
    """Sums of the losses of packed rows, and numbers of tokens, by the times of their sequences: [2, TIMES]."""
    part = (batch.times * TIMES).long().clamp_max(TIMES - 1).to(loss.device)
    tokens = batch.asked(torch.ones_like(batch.ids, dtype=torch.bool)).sum(1)
    sums = torch.zeros(2, TIMES, dtype=torch.float64, device=loss.device)
    sums[0].index_add_(0, part[sequence], loss)
    sums[1].index_add_(0, part, tokens.double())
    return sums


def of_rows(weight: Tensor | None, sequence: Int64[Tensor, " N"]) -> Tensor | None:
    """The weights of packed rows, by the sequences that they belong to."""
    return None if weight is None else weight.to(sequence.device)[sequence]


def asked_sequences(chosen: Bool[Tensor, " B"]) -> Int64[Tensor, " n"]:
    """The numbers of the chosen sequences; where none is, of the first, since other ranks may wait for the call."""
    found = chosen.nonzero()[:, 0]
    return found if len(found) > 0 else torch.zeros(1, dtype=torch.long, device=chosen.device)


def total(loss: Tensor, weight: Tensor | None, rows: slice | Tensor) -> Tensor:
    """The sum of the losses of some of the packed rows, each with its weight."""
    return loss.sum() if weight is None else (loss * weight[rows].to(loss.dtype)).sum()


def both(one: Tensor, other: Tensor | None) -> Tensor:
    """Where both hold; None holds everywhere."""
    return one if other is None else one & other
