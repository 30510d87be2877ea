"""What a network is given, brought to where its weights are."""

from typing import TypeVar

from torch import Tensor

from multimdm.process import Mixture, NoisyMixture
from multimdm.process.places import beside

Input = TypeVar("Input", bound=Tensor | Mixture | NoisyMixture | None)


def brought(x: Input, weight: Tensor) -> Input:
    """From home, if that is elsewhere (`process/places.py`)."""
    if x is None:
        return x
    if isinstance(x, Tensor):
        return beside(x, weight)  # pyright: ignore[reportReturnType]
    return type(x)(*(beside(part, weight) for part in x))  # pyright: ignore[reportReturnType]
