"""Soft inputs of a network: several states per position, with weights."""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor


class Mixture(NamedTuple):
    """A soft input: at every position a weighted sum of the embeddings of several ids."""

    weights: Float[Tensor, "B L k"]
    ids: Int[Tensor, "*places k"]
    """[B, L, k], or [k] where the ids are the same everywhere."""
