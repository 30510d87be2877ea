"""Named values that pass between processes, networks and objectives: soft inputs, and losses term by term."""

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor


class Mixture(NamedTuple):
    """A soft input: at every position a weighted sum of the embeddings of several ids."""

    weights: Float[Tensor, "B L k"]
    ids: Int[Tensor, "*places k"]
    """[B, L, k], or [k] where the ids are the same everywhere."""


class NoisyMixture(NamedTuple):
    """A mixture and, on top of it, the embeddings of all clean tokens with Gaussian weights.

    The input is sum_k weights_k e(ids_k) + scale sum_v eps_v e(v). Its last sum is a Gaussian of the embeddings' d
    dimensions, so that d numbers per position can say as much as the V numbers eps.
    """

    weights: Float[Tensor, "B L k"]
    ids: Int[Tensor, "B L k"]
    noise: Float[Tensor, "B L n"]
    """Standard Gaussians: eps itself (n = V), or n = d of them for the network to make the sum of."""
    scale: Float[Tensor, "B L"]


@dataclass(frozen=True)
class LossTerms:
    """Loss densities per position, in nats; their integral over t bounds the negative log-likelihood."""

    reconstruction: Float[Tensor, "*shape"]
    """Guessing the clean token. For `Uniform`, the whole loss."""
    identification: Float[Tensor, "*shape"]
    """Guessing the designated mask among the masks; zero for one mask and for `Uniform`."""

    @property
    def total(self) -> Float[Tensor, "*shape"]:
        """The sum of both terms."""
        return self.reconstruction + self.identification
