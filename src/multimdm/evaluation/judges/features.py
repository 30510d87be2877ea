"""What a judge's network makes of whole texts."""

from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int64
from torch import Tensor


@runtime_checkable
class Reader(Protocol):
    """A judge that is a network: it has a vector for each text."""

    @property
    def name(self) -> str:
        """What figures are labelled with."""
        ...

    @property
    def fingerprint(self) -> str:
        """Equal fingerprints give equal features."""
        ...

    def features(
        self, ids: Int64[Tensor, "num L"], valid: Bool[Tensor, "num L"] | None = None
    ) -> Float[Tensor, "num d"]:
        """The network's last layer at the last position of each text; padding (not `valid`) is no part of it."""
        ...
