"""The moving average of the weights: what is validated, sampled and saved."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


class Ema:
    """average <- average + (1 - d) (weights - average), d = min(decay, (1 + n) / (10 + n)) after n updates.

    The average of a sharded weight is sharded like it, so that every rank averages its own part.
    """

    def __init__(self, weights: Sequence[Tensor], decay: float) -> None:
        self.decay = decay
        self._weights = list(weights)
        self.average = [x.detach().clone() for x in self._weights]

    @torch.no_grad()
    def update(self, updates: int) -> None:
        """Follow the weights, `updates` times having been done before."""
        decay = min(self.decay, (1 + updates) / (10 + updates))
        for average, weight in zip(self.average, self._weights, strict=True):
            average.lerp_(weight.detach(), 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The network has the averaged weights inside the block."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for weight, average in zip(self._weights, self.average, strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)
