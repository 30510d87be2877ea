"""Confidence-ordered decoding: the positions that the network is surest of are revealed first, block after block.

With one mask and temperature 0 this is LLaDA's low-confidence sampler. It does not reverse the process: what is
revealed depends on the predictions, so its law is not that of ancestral sampling.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.process import MultiMask, Process, Schedule
from multimdm.process.draws import uniform
from multimdm.samplers.batch import Batch, Network
from multimdm.samplers.clean import USUAL, Choice, Hypotheses, draw_clean
from multimdm.samplers.guidance import guided
from multimdm.samplers.loop import Moved
from multimdm.samplers.remain import masked_process
from multimdm.samplers.settings import Threshold
from multimdm.samplers.tied import stay_masked

Count = int | Int64[Tensor, " B"]
"""One number for all sequences, or one for each."""


class Blocks(NamedTuple):
    """The blocks of every sequence, counted from its first free position."""

    index: Int64[Tensor, "B L"]
    number: Int64[Tensor, " B"]


class Front(NamedTuple):
    """The current block of every sequence."""

    hidden: Bool[Tensor, "B L"]
    """All that is still to be made."""
    candidates: Bool[Tensor, "B L"]
    """What of it lies in the block."""
    size: Int64[Tensor, " B"]
    """Free positions of the block."""
    block: Int64[Tensor, " B"]
    number: Int64[Tensor, " B"]
    """How many blocks there are."""
    t: Float[Tensor, " B"]


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

    remasking: Literal["low_confidence", "low_certainty", "random"] = "low_confidence"
    """What stays masked: the positions whose drawn token is least probable, or whose most probable token is least
    probable, or any."""
    guidance: float | int = 0.0
    """Scale of classifier-free guidance (`guidance.py`); each step is then two network calls."""
    late: tuple[int, ...] = ()
    """Tokens that count as unsure, so that positions are filled with them last: ends of text, which would otherwise
    crowd out the rest."""

    revises = False

    def check(self, free: Bool[Tensor, "B L"]) -> None:
        """Every block needs a step."""
        most = int(blocks_of(free, self.block_length).number.max())
        require(
            self.num_steps >= most,
            f"steps must be at least the number of blocks, {most}; got {self.num_steps}: take longer blocks",
        )

    def __call__(self, network: Network, process: Process, batch: Batch, k: int) -> Moved:
        """Reveal the surest hypotheses of every sequence's current block."""
        if k == 0:
            self.check(batch.free)
        front = self.front(process, batch)
        if self.guidance:
            network = guided(network, process, batch, self.guidance)
        how = front.candidates, True, self.late, self.peak
        hypotheses = draw_clean(network, process, batch, front.t, self.choice, *how)
        return self.move(process, batch, front, hypotheses, self.num_steps, k)

    @property
    def peak(self) -> bool:
        """Whether positions are ordered by the state alone, whatever is drawn."""
        return self.remasking == "low_certainty"

    def front(self, process: Process, batch: Batch) -> Front:
        """Where every sequence is being worked on."""
        return front_of(masked_process(process, "confidence-ordered decoding"), batch, self.block_length)

    def move(
        self, process: Process, batch: Batch, front: Front, hypotheses: Hypotheses, num_steps: Count, k: Count
    ) -> Moved:
        """Step k of K, given the hypotheses at the candidates; both may differ among the sequences (`joint.py`)."""
        process, (clean, confidence) = masked_process(process, "confidence-ordered decoding"), hypotheses
        assert confidence is not None
        if self.remasking == "random":
            confidence = uniform(confidence.shape, batch.generator, confidence.device)
        reveal = self._surest(confidence, front.candidates, self._steps_left(front, num_steps, k))
        if self.threshold is not None:
            reveal |= front.candidates & (confidence >= sure_from(self.threshold, num_steps))
        return revealed(process, batch, front, clean, reveal)

    def _steps_left(self, front: Front, num_steps: Count, k: Count) -> Int64[Tensor, " B"]:
        """Steps from this one to the end of the block's share, this one included."""
        end, start = (-(-(front.block + i) * num_steps // front.number) for i in (1, 0))
        # With a threshold, steps that were saved are not spent later on.
        return end - k if self.threshold is None else torch.minimum(end - k, end - start)

    def _surest(
        self, confidence: Float[Tensor, "B L"], candidates: Bool[Tensor, "B L"], steps_left: Int64[Tensor, " B"]
    ) -> Bool[Tensor, "B L"]:
        """The even share of the remaining positions, surest first (leftmost of equals)."""
        quota = -(-candidates.sum(1) // steps_left)
        order = confidence.masked_fill(~candidates, -1.0).argsort(dim=1, descending=True, stable=True)
        return (order.argsort(dim=1) < quota[:, None]) & candidates


def sure_from(threshold: Threshold, num_steps: Count) -> float | Float[Tensor, "B 1"]:
    """From which confidence on a position is sure; with K calls, `by_steps` says K / (K + 1).

    Of the positions that are left, each call then decides about those that it would get wrong less often than once in
    K + 1; the fewer calls there are, the less can be left for later ones.
    """
    if threshold != "by_steps":
        return float(threshold)
    least = num_steps / (num_steps + 1)
    return least[:, None] if isinstance(least, Tensor) else least


def front_of(process: MultiMask, batch: Batch, block_length: int | None) -> Front:
    """The first block of every sequence that has something hidden, and its time."""
    hidden = process.active(batch.x) & batch.free
    blocks = blocks_of(batch.free, block_length)
    current = blocks.index.masked_fill(~hidden, blocks.index.shape[1]).amin(1)
    here = (blocks.index == current[:, None]) & batch.free
    candidates, size = hidden & here, here.sum(1)
    t = time_of_share(process.schedule, candidates.sum(1) / size.double())
    return Front(hidden, candidates, size, current, blocks.number, t)


def revealed(
    process: MultiMask, batch: Batch, front: Front, clean: Int64[Tensor, "B L"], reveal: Bool[Tensor, "B L"]
) -> Moved:
    """The hypotheses where candidates are revealed; the other candidates move by the kernel, given that they stay."""
    candidates, before = front.candidates, front.candidates.sum(1)
    x_s = torch.where(reveal, clean, batch.x)
    if process.num_masks > 1:
        s = time_of_share(process.schedule, (before - reveal.sum(1)) / front.size.double())
        u = uniform(x_s.shape, batch.generator, x_s.device)
        x_s = torch.where(candidates & ~reveal, stay_masked(process, clean, batch, s, front.t, u), x_s)
    left = (front.hidden & ~reveal).sum(1) / batch.free.sum(1).double()
    return Moved(x_s, time_of_share(process.schedule, left))


def blocks_of(free: Bool[Tensor, "B L"], block_length: int | None) -> Blocks:
    """Blocks of positions; what comes before the first free position, such as a prompt, belongs to none (index -1)."""
    L = free.shape[1]
    size = L if block_length is None else block_length
    place = torch.arange(L, device=free.device).expand_as(free)
    first = place.masked_fill(~free, L).amin(1, keepdim=True)
    index = torch.where(place < first, -1, (place - first) // size)
    return Blocks(index, index.masked_fill(~free, -1).amax(1) + 1)


def time_of_share(schedule: Schedule, share: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """The t with 1 - alpha_t = share: the time at which the process masks this share of the positions."""
    if schedule.kind == "linear":
        return share
    return (4 / math.pi * torch.asin(torch.sqrt(share / 2))).clamp_max(1.0)  # 1 - cos(pi t / 2) = 2 sin^2(pi t / 4)
