"""The likelihood of an autoregressive model: for judges of generated text, and as the other baseline.

Shapes: as in `base.py`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int64
from torch import Tensor
from torch.nn import functional as F

from multimdm.objectives.base import Batch, Network, Rows, Sums
from multimdm.process import LossTerms
from multimdm.process.fused_readout import cross_entropy


@dataclass(frozen=True)
class NextToken:
    """-sum_l log p(x_l | x_<l), the first token included: the network is shown a start symbol, id V, before it."""

    vocab_size: int

    def __call__(self, network: Network, batch: Batch) -> Sums:
        """The exact value; no randomness is used."""
        counted = batch.asked(torch.ones_like(batch.ids, dtype=torch.bool))
        rows = self.rows(batch.ids, batch.valid, counted)
        clean = batch.ids[rows.where]

        def reduce(logits: Tensor, part: slice) -> tuple[Tensor, Tensor]:
            # torch's own sum, which rounds otherwise than the sum of what it gives row by row
            loss = cross_entropy(logits, clean[part], "sum")
            return loss, loss

        loss, total = rows.call(network, reduce)
        return Sums(loss, {"next_token": total})

    def rows(self, x_0: Int64[Tensor, "B L"], valid: Bool[Tensor, "B L"] | None, counted: Bool[Tensor, "B L"]) -> Rows:
        """The tokens that count, each given all before it."""
        where = counted.nonzero(as_tuple=True)
        clean = x_0[where]

        # -log p(x_l | x_<l)
        def terms(logits: Tensor, part: slice) -> LossTerms:
            loss = cross_entropy(logits, clean[part], "none")
            return LossTerms(loss, torch.zeros_like(loss))

        return Rows(shift_right(x_0, self.vocab_size), None, counted, valid, where, terms)


def shift_right(ids: Tensor, start: int) -> Tensor:
    """The start symbol, then all tokens but the last: what a causal network is shown."""
    return F.pad(ids[:, :-1], (1, 0), value=start)
