"""What a causal network keeps of the positions that it has seen, so that each is looked at once.

Shapes: B sequences, h heads of width e.
"""

from jaxtyping import Float
from torch import Tensor

_AT_FIRST = 32


class _Grown:
    """Vectors [B, h, length, e] to which more are added; their room doubles, so that they are copied a few times."""

    def __init__(self) -> None:
        self.length = 0
        self._room: Tensor | None = None

    def extended(self, new: Tensor) -> Tensor:
        before = self.length
        self.length += new.shape[2]
        if self._room is None or self._room.shape[2] < self.length:
            B, h, _, e = new.shape
            room = new.new_empty((B, h, max(_AT_FIRST, 2 * self.length), e))
            if self._room is not None:
                room[:, :, :before] = self._room[:, :, :before]
            self._room = room
        self._room[:, :, before : self.length] = new
        return self._room[:, :, : self.length]


class KeysAndValues:
    """The keys and values of a block's attention at the positions so far."""

    def __init__(self) -> None:
        self._keys, self._values = _Grown(), _Grown()

    @property
    def length(self) -> int:
        """How many positions have been seen."""
        return self._keys.length

    def extended(
        self, k: Float[Tensor, "B h new e"], v: Float[Tensor, "B h new e"]
    ) -> tuple[Float[Tensor, "B h length e"], Float[Tensor, "B h length e"]]:
        """Those of all positions, with these as the last."""
        return self._keys.extended(k), self._values.extended(v)
