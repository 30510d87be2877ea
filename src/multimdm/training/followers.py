"""What follows the weights that are trained: their moving average, and the teacher that a student is distilled from."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from multimdm.models import Backbone
from multimdm.training.engine import Engine, like

_PREFIX = "teacher."
"""What the names of a teacher's weights begin with in checkpoints."""


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


class Teacher:
    """A network beside the student's, on the same device and sharded like it."""

    def __init__(self, engine: Engine, network: Backbone) -> None:
        self._engine = engine
        self._network = engine.place(network.requires_grad_(False)).eval()
        own = dict(self._network.named_parameters())
        self._weights = {name: own[name] for name in engine.names}  # what is frozen is the student's too

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run it in the precision of the run."""
        with self._engine.autocast():
            return self._network(*args, **named)

    def features(self, *args: Any) -> Tensor:
        """Run it up to its head."""
        with self._engine.autocast():
            return self._network.features(*args)

    def logits(self, features: Tensor) -> Tensor:
        """Run the teacher's head."""
        with self._engine.autocast():
            return self._network.logits(features)

    @torch.no_grad()
    def follow(self, share: float) -> None:
        """Go this share of the way to the student; the whole way is a copy."""
        if share == 0:
            return
        for name, weight in zip(self._engine.names, self._engine.weights, strict=True):
            own = self._weights[name]
            own.copy_(weight.detach()) if share == 1 else own.lerp_(weight.detach(), share)
        self._engine.reshard(self._network)

    def state(self) -> dict[str, Tensor]:
        """Its weights, on the CPU; shards stay shards."""
        return self._engine.copied({_PREFIX + name: x for name, x in self._weights.items()})

    def spread(self) -> dict[str, Tensor]:
        """What of `state` is spread over ranks, and how."""
        return {_PREFIX + name: x for name, x in self._weights.items()} if self._engine.sharded else {}

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `state` gave."""
        for name, weight in self._weights.items():
            weight.copy_(like(tensors[_PREFIX + name], weight))
        self._engine.reshard(self._network)
