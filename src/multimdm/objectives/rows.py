"""The loss of a prediction, position by position: training sums the terms, a NELBO groups them by sequence.

Shapes: B sequences of L positions; N of these are asked for, packed in row-major order; a chunk of the network's head
has n packed rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from multimdm.objectives.base import Network
from multimdm.process import LossTerms, Path

Where = tuple[Int64[Tensor, " N"], ...]
"""Packed positions: their sequences, and their places in these."""


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
