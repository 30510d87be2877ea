"""What a teacher says at chosen positions, without ever holding [N, V] of it.

Shapes: B sequences of L positions, of which N are chosen and packed; features of width d; V clean tokens.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.objectives.base import Network
from multimdm.process import Mixture, Process, Time
from multimdm.process.places import fuses, widened


def check_untied(process: Process) -> None:
    """Refuse noise that is tied to the text: other paths would untie it, and along its own nothing is gained."""
    require(
        not process.tied_noise,
        "process must not have its noise tied to the text: distilling such a model gains nothing (docs/quantile.md); "
        f"train it longer by multimdm couple; got {process!r}",
    )


@runtime_checkable
class TwoPart(Protocol):
    """A network that can stop before its head: `logits(features(...))` is what a call gives."""

    def features(self, x_t: Tensor | Mixture, t: Time | None, positions: Tensor | None, valid: Tensor | None) -> Tensor:
        """What the head sees at the positions, [N, d]."""
        ...

    def logits(self, features: Tensor) -> Tensor:
        """What the head makes of features: logits [N, V]."""
        ...


class Lesson:
    """The teacher's predictions at packed positions, of which a few rows at a time are asked for.

    What is kept of a network that can stop before its head is [N, d], and the head runs when rows are asked for. Of any
    other network the logits are kept.
    """

    def __init__(
        self,
        teacher: Network,
        x: Int64[Tensor, "B L"] | Mixture,
        t: Float[Tensor, " B"],
        positions: Bool[Tensor, "B L"],
        valid: Bool[Tensor, "B L"] | None,
    ) -> None:
        with torch.no_grad():
            self._kept, self._head = _run(teacher, x, t, positions, valid)

    def __len__(self) -> int:
        return len(self._kept)

    def replace(self, rows: Int64[Tensor, " n"], other: "Lesson") -> None:
        """Take over another lesson in these rows, of which it has as many."""
        self._kept = self._kept.index_put((rows,), other._kept)  # a new tensor: this one may be the teacher's own

    @torch.no_grad()
    def logits(self, rows: slice) -> Float[Tensor, "n V"]:
        """The teacher's logits in float32 or better; as they are where compiled kernels read them, which widen each."""
        logits = self._head(self._kept[rows])
        return logits if fuses(logits) else widened(logits)


def _run(
    teacher: Network, x: Tensor | Mixture, t: Tensor, positions: Tensor, valid: Tensor | None
) -> tuple[Tensor, Callable]:
    if isinstance(teacher, TwoPart):
        return teacher.features(x, t, positions, valid), teacher.logits
    return teacher(x, t, positions, valid), lambda logits: logits
