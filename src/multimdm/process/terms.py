"""The value of a loss, term by term."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


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
