"""CANDI's loss: the cross-entropy of hidden tokens, weighed as in masked diffusion, with noisy one-hots in their place.

It is like a NELBO, and for comparing CANDI models as good; but it leaves out what the Gaussian noise costs, so it is no
bound of the likelihood and must not be set beside the NELBO of other systems.
"""

from dataclasses import dataclass

from torch import Tensor

from multimdm.objectives.base import Batch, Network, Sums, both, of_rows, total
from multimdm.process import Hybrid


@dataclass(frozen=True)
class Candi:
    """log p(x_0) alpha'_t / (1 - alpha_t), summed over hidden positions: one draw of x_t per sequence."""

    process: Hybrid

    def __call__(self, network: Network, batch: Batch) -> Sums:
        """No [B, L, V] tensor is made, neither of logits nor of noise."""
        t = batch.times.to(batch.ids.device)
        x_t = self.process.corrupt(batch.ids, t, batch.generator)
        hidden = both(self.process.hidden(x_t), batch.valid)
        where = hidden.nonzero(as_tuple=True)  # once: on a GPU it waits for the positions
        clean, time, weight = batch.ids[where], t[where[0]], of_rows(batch.weight, where[0])

        def reduce(logits: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
            loss = total(self.process.logit_loss(logits, clean[rows], time[rows]), weight, rows)
            return loss, loss

        loss, reconstruction = network(self.process.shown(x_t, t), t, hidden, batch.valid, reduce)
        return Sums(loss, {"reconstruction": reconstruction})
