"""The path that a student and its teacher walk: to any noise or, where noise is tied to the text, to the text's own."""

from dataclasses import dataclass

from jaxtyping import Int64
from torch import Tensor

from multimdm.objectives.base import Batch
from multimdm.process import Mixture, MultiMask, Process, Time
from multimdm.process.anchored import anchor, anchored_reverse_sample, anchored_state, shown_with_end
from multimdm.process.draws import Generator


@dataclass(frozen=True)
class FreePath:
    """Of any process, as it is."""

    process: Process

    def corrupt(self, batch: Batch, t: Time) -> Int64[Tensor, "B L"]:
        """x_t."""
        return batch.keep(self.process.corrupt(batch.ids, t, batch.generator))

    def shown(self, x: Tensor) -> Tensor:
        """What networks are shown of a state."""
        return x

    def reverse_sample(self, clean: Tensor, x: Tensor, s: Time, t: Time, generator: Generator) -> Int64[Tensor, "B L"]:
        """x_s from x_t and hypotheses of the clean tokens."""
        return self.process.reverse_sample(clean, x, s, t, generator)


@dataclass(frozen=True)
class TiedPath:
    """The same to a given x_1, which is kept."""

    process: MultiMask
    end: Int64[Tensor, "B L"]

    def corrupt(self, batch: Batch, t: Time) -> Int64[Tensor, "B L"]:
        """x_t."""
        return anchored_state(self.process, batch.ids, anchor(self.end, batch.generator), t)

    def shown(self, x: Tensor, given: Tensor | None = None) -> Tensor | Mixture:
        """The state with x_1 beside it, but where tokens are given."""
        return shown_with_end(self.process, x, self.end, given)

    def reverse_sample(self, clean: Tensor, x: Tensor, s: Time, t: Time, generator: Generator) -> Int64[Tensor, "B L"]:
        """x_s from x_t and hypotheses of the clean tokens."""
        return anchored_reverse_sample(self.process, clean, x, self.end, s, t, generator)


def path_of(process: Process, batch: Batch) -> FreePath | TiedPath:
    """By whether the process has its noise tied to the text."""
    if isinstance(process, MultiMask) and process.tied_noise:
        return tied_path(process, batch)
    return FreePath(process)


def tied_path(process: MultiMask, batch: Batch) -> TiedPath:
    """To the text's own x_1 or, without one, to any."""
    end = batch.noise
    if end is None:
        end = process.prior(batch.ids.shape, batch.generator, batch.ids.device)
    return TiedPath(process, end)
