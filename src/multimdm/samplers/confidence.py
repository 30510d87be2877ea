"""Confidence-ordered decoding: the positions that the network is surest of are revealed first, block after block.

With one mask and temperature 0 this is LLaDA's low-confidence sampler. It does not reverse the process: what is
revealed depends on the predictions, so its law is not that of ancestral sampling.

Shapes: B sequences of L positions.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.process import Process
from multimdm.process.draws import uniform
from multimdm.samplers.batch import Batch, Count
from multimdm.samplers.blocks import Front, blocks_of, front_of, time_of_share
from multimdm.samplers.choice import USUAL, Choice
from multimdm.samplers.loop import Moved
from multimdm.samplers.process_checks import masked_process
from multimdm.samplers.question import Hypotheses, Question, ask, guidance_of
from multimdm.samplers.settings import Remasking, Threshold


@dataclass(frozen=True)
class Confidence:
    """Reveal n positions of the current block per step, n such that the block's steps suffice; keep the rest masked.

    The K steps are shared evenly among the blocks and a block's positions among its steps, with remainders to the early
    ones. With several masks, the time t of the block is that at which the process masks the share that is masked, s
    likewise after the step, and positions that stay masked move by the reverse kernel from t to s given that they do;
    later blocks stay at noise. The network sees the block's t: it tells how sure the masks are that it has to read.
    """

    num_steps: int
    """K."""
    choice: Choice = USUAL
    block_length: int | None = None
    """One block for all unless given."""
    threshold: Threshold | None = None
    """Also reveal all positions of at least this confidence; a sequence that is ahead goes on to its next block."""
    remasking: Remasking = "low_confidence"
    """What stays masked: the positions whose drawn token is least probable, or whose most probable token is least
    probable, or any."""
    guidance: float | int = 0.0
    """Scale of classifier-free guidance (`question.py`); each step is then two network calls."""
    late: tuple[int, ...] = ()
    """Tokens that count as unsure, so that positions are filled with them last: ends of text, which would otherwise
    crowd out the rest."""

    revises = False

    def check(self, process: Process, free: Bool[Tensor, "B L"] | None = None) -> None:
        """There must be masks, and every block needs a step."""
        masked_process(process, "order='confidence'")
        most = 0 if free is None else int(blocks_of(free, self.block_length).number.max())
        require(
            self.num_steps >= most,
            f"steps must be at least the number of blocks, {most}; got {self.num_steps}: take longer blocks",
        )

    def question(self, process: Process, batch: Batch, k: Count) -> Question:
        """Clean tokens at the hidden positions of every sequence's current block, and how sure they are."""
        front = front_of(process, batch, self.block_length)
        guidance = guidance_of(process, batch, self.guidance)
        how = {"confidence": True, "late": self.late, "peak": self.peak, "front": front, "guidance": guidance}
        return ask(process, batch, front.t, self.choice, front.candidates, **how)

    @property
    def peak(self) -> bool:
        """Whether positions are ordered by the state alone, whatever is drawn."""
        return self.remasking == "low_certainty"

    def move(self, question: Question, hypotheses: Hypotheses, k: Count) -> Moved:
        """Reveal the surest hypotheses."""
        clean, confidence = hypotheses
        front = question.front
        assert confidence is not None
        assert front is not None
        if self.remasking == "random":
            confidence = uniform(confidence.shape, question.batch.generator, confidence.device)
        # the surest positions, as many as this step's share, and all that are sure enough
        reveal = _surest(confidence, front.candidates, self._steps_left(front, k))
        if self.threshold is not None:
            reveal |= front.candidates & (confidence >= sure_from(self.threshold, self.num_steps))
        return revealed(question, clean, reveal)

    def _steps_left(self, front: Front, k: Count) -> Int64[Tensor, " B"]:
        """Steps from this one to the end of the block's share, this one included."""
        start = -(-front.block * self.num_steps // front.number)
        end = -(-(front.block + 1) * self.num_steps // front.number)
        # With a threshold, steps that were saved are not spent later on.
        return end - k if self.threshold is None else torch.minimum(end - k, end - start)


def _surest(
    confidence: Float[Tensor, "B L"], candidates: Bool[Tensor, "B L"], steps_left: Int64[Tensor, " B"]
) -> Bool[Tensor, "B L"]:
    """The even share of the remaining positions, surest first (leftmost of equals)."""
    quota = -(-candidates.sum(1) // steps_left)
    # The rank of a position is where it stands in the order, which the second argsort tells.
    order = confidence.masked_fill(~candidates, -1.0).argsort(dim=1, descending=True, stable=True)
    return (order.argsort(dim=1) < quota[:, None]) & candidates


def sure_from(threshold: Threshold, num_steps: int) -> float:
    """The confidence from which on a position is sure; with K calls, `by_steps` says K / (K + 1).

    Of the positions that are left, each call then decides about those that it would get wrong less often than once in
    K + 1; the fewer calls there are, the less can be left for later ones.
    """
    return num_steps / (num_steps + 1) if threshold == "by_steps" else float(threshold)


def revealed(question: Question, clean: Int64[Tensor, "B L"], reveal: Bool[Tensor, "B L"]) -> Moved:
    """The hypotheses where candidates are revealed; the other candidates move by the kernel, given that they stay."""
    batch = question.batch
    front = question.front
    schedule = question.process.schedule
    assert front is not None
    x_s = torch.where(reveal, clean, batch.x)
    if question.process.num_masks > 1:
        # 1 - alpha_s = the share of the block that stays hidden
        left_here = front.candidates.sum(1) - reveal.sum(1)
        s = time_of_share(schedule, left_here / front.size.double())
        u = uniform(x_s.shape, batch.generator, x_s.device)
        stays = front.candidates & ~reveal
        x_s = torch.where(stays, question.path.remain(clean, batch.x, s, front.t, u), x_s)
    left = (front.hidden & ~reveal).sum(1) / batch.free.sum(1).double()
    return Moved(x_s, time_of_share(schedule, left))
