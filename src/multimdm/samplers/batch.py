"""The sequences that are still being made, as a step sees them.

Shapes: B sequences of L positions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm.process import Generator, Streams

Network = Callable[..., Any]
"""network(x_t, t, positions=..., valid=..., reduce=...): clean-token logits at `positions`, as `reduce` leaves them."""

Count = int | Int64[Tensor, " B"]
"""One number for all sequences, or one for each."""


@dataclass(frozen=True)
class Batch:
    """States, what of them may change, what is not padding, and where randomness comes from."""

    x: Int64[Tensor, "B L"]
    free: Bool[Tensor, "B L"]
    """Neither fixed nor padding."""
    valid: Bool[Tensor, "B L"] | None = None
    """What the network attends to; None is everything."""
    generator: Generator = None
    x_1: Int64[Tensor, "B L"] | None = None
    """The noise, of a process whose noise is tied to the text; None for others, which forget it."""
    numbers: Float64[Tensor, "B L"] | None = None
    """What tokens are drawn by, of a step that draws by the same numbers again (`rewrite.py`); None for fresh ones."""

    def rows(self, keep: Bool[Tensor, " B"]) -> "Batch":
        """The batch of some of the sequences."""
        return Batch(
            self.x[keep],
            self.free[keep],
            None if self.valid is None else self.valid[keep],
            _rows_of(self.generator, keep),
            None if self.x_1 is None else self.x_1[keep],
            None if self.numbers is None else self.numbers[keep],
        )


def _rows_of(generator: Generator, keep: Tensor) -> Generator:
    """The streams of the sequences that stay, where they are: a stream's next number is that of its own next draw."""
    if not isinstance(generator, Streams):
        return generator
    kept = Streams(generator.seeds[keep.to(generator.seeds.device)])
    kept.draws = generator.draws
    return kept
