"""Left-to-right decoding: every call reveals the run of sure positions that the text goes on with.

One position per call with one mask is autoregressive sampling: x^l ~ p^theta(. | x^{<l}), exact for an exact network. A
run of positions is drawn from the same call, as if they were independent given what is before them, so it may be long
only where that is nearly so: where each is nearly certain.
"""

from dataclasses import dataclass

from jaxtyping import Bool, Int64
from torch import Tensor

from multimdm.process import Process
from multimdm.samplers.batch import Batch, Network
from multimdm.samplers.clean import USUAL, Choice, Hypotheses, draw_clean
from multimdm.samplers.confidence import Count, Front, front_of, revealed, sure_from
from multimdm.samplers.loop import Moved
from multimdm.samplers.remain import masked_process
from multimdm.samplers.settings import SURE_RUN, Threshold

_WHO = "left-to-right decoding"


@dataclass(frozen=True)
class LeftToRight:
    """From the leftmost hidden position on, reveal all up to the first that is not sure; n at least.

    n = ceil(hidden / steps left), so that K calls suffice. Given tokens between hidden positions do not end a run.
    Times, and masks that stay hidden, are as in `Confidence`.
    """

    num_steps: int
    """K, at most: a sequence whose runs are long is finished earlier."""
    choice: Choice = USUAL
    threshold: Threshold = SURE_RUN
    """Confidence from which on a position is sure."""

    late = ()
    peak = False
    revises = False

    def __call__(self, network: Network, process: Process, batch: Batch, k: int) -> Moved:
        """Reveal the next run of every sequence."""
        front = self.front(process, batch)
        hypotheses = draw_clean(network, process, batch, front.t, self.choice, front.candidates, True)
        return self.move(process, batch, front, hypotheses, self.num_steps, k)

    def front(self, process: Process, batch: Batch) -> Front:
        """All that is hidden."""
        return front_of(masked_process(process, _WHO), batch, None)

    def move(
        self, process: Process, batch: Batch, front: Front, hypotheses: Hypotheses, num_steps: Count, k: Count
    ) -> Moved:
        """Step k of K, given the hypotheses at the candidates; both may differ among the sequences (`joint.py`)."""
        clean, confidence = hypotheses
        assert confidence is not None
        hidden = front.candidates
        quota = -(-hidden.sum(1) // (num_steps - k))
        reveal = first_run(confidence >= sure_from(self.threshold, num_steps), hidden, quota)
        return revealed(masked_process(process, _WHO), batch, front, clean, reveal)


def first_run(
    sure: Bool[Tensor, "B L"], hidden: Bool[Tensor, "B L"], least: Int64[Tensor, " B"]
) -> Bool[Tensor, "B L"]:
    """The hidden positions before the first that is not sure, and the first `least` hidden ones in any case."""
    unbroken = (sure | ~hidden).long().cumprod(1).bool()
    return hidden & (unbroken | (hidden.cumsum(1) <= least[:, None]))
