"""The network that a student is distilled from: it is not trained, it follows."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from multimdm.models import Backbone
from multimdm.training.engine import Engine, like

_PREFIX = "teacher."


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
        """Run its head."""
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
