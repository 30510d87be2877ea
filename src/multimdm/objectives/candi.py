"""CANDI's loss: the cross-entropy of hidden tokens, weighed as in masked diffusion, with noisy one-hots in their place.

It is like a NELBO, and for comparing CANDI models as good; but it leaves out what the Gaussian noise costs, so it is no
bound of the likelihood and must not be set beside the NELBO of other systems.

Shapes: as in `base.py`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm.objectives.base import Batch, Network, Rows, Sums, both, of_rows, total
from multimdm.process import Hybrid, LossTerms, Streams


@dataclass(frozen=True)
class Candi:
    """log p(x_0) alpha'_t / (1 - alpha_t), summed over hidden positions: one draw of x_t per sequence."""

    process: Hybrid

    def __call__(self, network: Network, batch: Batch) -> Sums:
        """One draw of x_t per sequence; no [B, L, V] tensor is made, neither of logits nor of noise."""
        rows = self.rows(batch.ids, batch.valid, batch.times.to(batch.ids.device), batch.generator)
        weight = of_rows(batch.weight, rows.where[0])

        def reduce(logits: Tensor, part: slice) -> tuple[Tensor, Tensor]:
            loss = total(rows.terms(logits, part).reconstruction, weight, part)
            return loss, loss

        loss, reconstruction = rows.call(network, reduce)
        return Sums(loss, {"reconstruction": reconstruction})

    def rows(
        self,
        x_0: Int64[Tensor, "B L"],
        valid: Bool[Tensor, "B L"] | None,
        t: Float64[Tensor, " B"],
        generator: Streams,
    ) -> Rows:
        """The positions that are hidden in a draw of x_t, and their loss."""
        # x_t: tokens with probability alpha_t, else x_0 + sigma_t eps, which has a loss
        x_t = self.process.corrupt(x_0, t, generator)
        hidden = both(self.process.hidden(x_t), valid)
        where = hidden.nonzero(as_tuple=True)  # once: on a GPU it waits for the positions
        clean = x_0[where]
        time = t[where[0]]

        def terms(logits: Tensor, rows: slice) -> LossTerms:
            loss = self.process.logit_loss(logits, clean[rows], time[rows])
            return LossTerms(loss, torch.zeros_like(loss))

        return Rows(self.process.shown(x_t, t), t, hidden, valid, where, terms)
