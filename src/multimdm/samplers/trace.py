"""What a sampler did, step by step.

Shapes: B sequences of L positions, at the `times` before, between and after the steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from multimdm.process import AnyProcess, Hybrid, MultiMask

CLEAN = 0
DESIGNATED = 1
OTHER = 2
"""What a state can be, for pictures."""


@dataclass(frozen=True)
class Trace:
    """The states of every step, the noise first and the result last."""

    states: Int64[Tensor, "times B L"]
    times: Float[Tensor, "times B"]
    """The time of each state; 0 for sequences that are finished."""

    def kinds(self, process: AnyProcess) -> Int64[Tensor, "times B L"]:
        """CLEAN, DESIGNATED or OTHER: whether a state is clean, the mask of what its position came to be, or another.

        Without masks, CLEAN is the final token and OTHER any other. What `Hybrid` hides is DESIGNATED, like one mask.
        """
        if isinstance(process, Hybrid):
            return torch.where(self.states < process.vocab_size, CLEAN, DESIGNATED)
        final = self.states[-1].expand_as(self.states)
        if not isinstance(process, MultiMask):
            return torch.where(self.states == final, CLEAN, OTHER)
        # the mask m(x_0) of what the position came to be, or another one
        masked = torch.where(self.states == process.designated_mask(final), DESIGNATED, OTHER)
        return torch.where(process.active(self.states), masked, CLEAN)

    def within(self, length: int) -> "Trace":
        """The first positions alone: behind them is padding, or what is not to be looked at."""
        return Trace(self.states[:, :, :length], self.times)

    @classmethod
    def join(cls, parts: Sequence["Trace"]) -> "Trace":
        """Traces of several batches as one."""
        return cls(torch.cat([p.states for p in parts], dim=1), torch.cat([p.times for p in parts], dim=1))
