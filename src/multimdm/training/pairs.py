"""Where the noise of a training text comes from, if it is not drawn independently of it."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor

from multimdm.data.prepared import Example


@runtime_checkable
class Pairs(Protocol):
    """Training texts with their noise, made ahead of the steps that use them."""

    def due(self, first: int) -> bool:
        """Whether the text with this number has no noise yet."""
        ...

    def refresh(self, first: int) -> str | None:
        """Make the pairs from this text on. All ranks must call it, with the averaged weights in the network.

        None, or what was saved when the run was asked to stop before all were made.
        """
        ...

    def train(self, first: int, num: int) -> tuple[Example, Tensor]:
        """The texts number first .. first + num - 1, and x_1 of each."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All that a resumed run needs."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `state` gave."""
        ...
