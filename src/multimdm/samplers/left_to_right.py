"""Left-to-right decoding: every call reveals the run of sure positions that the text goes on with.

One position per call with one mask is autoregressive sampling: x^l ~ p^theta(. | x^{<l}), exact for an exact network. A
run of positions is drawn from the same call, as if they were independent given what is before them, so it may be long
only where that is nearly so: where each is nearly certain.

Shapes: B sequences of L positions.
"""

from dataclasses import dataclass

from jaxtyping import Bool, Int64
from torch import Tensor

from multimdm.process import Process
from multimdm.samplers.batch import Batch, Count
from multimdm.samplers.blocks import front_of
from multimdm.samplers.choice import USUAL, Choice
from multimdm.samplers.confidence import revealed, sure_from
from multimdm.samplers.loop import Moved
from multimdm.samplers.process_checks import masked_process
from multimdm.samplers.question import Hypotheses, Question, ask
from multimdm.samplers.settings import SURE_RUN, Threshold


@dataclass(frozen=True)
class LeftToRight:
    """Reveal all from the leftmost hidden position up to the first that is not sure; n at least.

    n = ceil(hidden / steps left), so that K calls suffice. Given tokens between hidden positions do not end a run.
    Times, and masks that stay hidden, are as in `Confidence`.
    """

    num_steps: int
    """K, at most: a sequence whose runs are long is finished earlier."""
    choice: Choice = USUAL
    threshold: Threshold = SURE_RUN
    """Confidence from which on a position is sure."""

    revises = False

    def check(self, process: Process, free: Bool[Tensor, "B L"] | None = None) -> None:
        """Refuse a process without masks."""
        masked_process(process, "order='left_to_right'")

    def question(self, process: Process, batch: Batch, k: Count) -> Question:
        """Clean tokens at all hidden positions, and how sure they are."""
        front = front_of(process, batch)
        return ask(process, batch, front.t, self.choice, front.candidates, confidence=True, front=front)

    def move(self, question: Question, hypotheses: Hypotheses, k: Count) -> Moved:
        """Reveal the next run of every sequence."""
        assert hypotheses.confidence is not None
        hidden = question.positions
        # n = ceil(hidden / steps left)
        quota = -(-hidden.sum(1) // (self.num_steps - k))
        sure = hypotheses.confidence >= sure_from(self.threshold, self.num_steps)
        return revealed(question, hypotheses.clean, first_run(sure, hidden, quota))


def first_run(
    sure: Bool[Tensor, "B L"], hidden: Bool[Tensor, "B L"], least: Int64[Tensor, " B"]
) -> Bool[Tensor, "B L"]:
    """The hidden positions before the first that is not sure, and the first `least` hidden ones in any case."""
    # The run lasts while no position before it was hidden and unsure.
    unbroken = (sure | ~hidden).long().cumprod(1).bool()
    return hidden & (unbroken | (hidden.cumsum(1) <= least[:, None]))
