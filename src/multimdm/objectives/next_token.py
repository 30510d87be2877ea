"""The likelihood of an autoregressive model: for judges of generated text, and as the other baseline."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from multimdm.objectives.base import Batch, Network, Sums
from multimdm.process.cross_entropy import cross_entropy


@dataclass(frozen=True)
class NextToken:
    """-sum_l log p(x_l | x_<l), the first token included: the network is shown a start symbol, id V, before it."""

    vocab_size: int

    def __call__(self, network: Network, batch: Batch) -> Sums:
        """The exact value; no randomness is used."""
        counted = batch.asked(torch.ones_like(batch.ids, dtype=torch.bool))
        clean = batch.ids[counted]

        def reduce(logits: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
            loss = cross_entropy(logits, clean[rows], "sum")
            return loss, loss

        loss, total = network(shift_right(batch.ids, self.vocab_size), None, counted, batch.valid, reduce)
        return Sums(loss, {"next_token": total})


def shift_right(ids: Tensor, start: int) -> Tensor:
    """The start symbol, then all tokens but the last: what a causal network is shown."""
    return F.pad(ids[:, :-1], (1, 0), value=start)
