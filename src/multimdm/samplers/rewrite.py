"""Rewriting: every call predicts the whole text anew from x_1 and the draft before it, until nothing changes.

With the noise x_1 and the numbers u that tokens are drawn by fixed, a call maps drafts to drafts, x -> G(x; x_1, u),
and this is Jacobi's iteration for x = G(x; x_1, u). Where the network predicts position l from x_1 and the tokens
before l, the first l tokens are settled after l calls, and the fixed point is what going from left to right draws by
the same numbers. The more x_1 tells by itself, the sooner it is reached. It is for networks that are shown x_1: a draft
has no masks left.

Shapes: drafts x, the noise x_1 and the numbers u are [B, L].
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from multimdm._checks import require
from multimdm.process import Process
from multimdm.process.draws import uniform
from multimdm.samplers.batch import Batch, Count
from multimdm.samplers.choice import USUAL, Choice
from multimdm.samplers.loop import Moved
from multimdm.samplers.question import Hypotheses, Question, ask


@dataclass(frozen=True)
class Rewrite:
    """x <- G(x; x_1, u) at all free positions: from noise at t = 1 in the first call, from the draft at t = 0 later."""

    num_steps: int
    """K, at most: a sequence that a call leaves as it was is finished."""
    choice: Choice = USUAL

    revises = True

    def check(self, process: Process, free: Bool[Tensor, "B L"] | None = None) -> None:
        """Refuse a process that does not show x_1, since nothing else in the state would tell of it."""
        require(
            process.noise_shown,
            "order='rewrite' is for a model that is shown its noise beside the text (tied noise), since nothing else "
            f"would tell it which text is meant; got {process!r}: use another order",
        )

    def question(self, process: Process, batch: Batch, k: Count) -> Question:
        """The whole text; the network is given t = 1 with noise and t = 0 with a draft."""
        t = (k == 0).double() if isinstance(k, Tensor) else float(k == 0)
        return ask(process, self.numbered(batch, k), t, self.choice, batch.free)

    def numbered(self, batch: Batch, k: Count) -> Batch:
        """The batch with the numbers u, drawn in the first call and kept later: so a call can leave all as it was."""
        if self.choice.certain:
            return batch
        u = uniform(batch.x.shape, batch.generator, batch.x.device)
        return replace(batch, numbers=u if batch.numbers is None else _once(u, batch.numbers, k))

    def move(self, question: Question, hypotheses: Hypotheses, k: Count) -> Moved:
        """The hypotheses are the new draft."""
        batch = question.batch
        x = torch.where(batch.free, hypotheses.clean, batch.x)
        time = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        return Moved(x, time, finished=(x == batch.x).all(1), numbers=batch.numbers)


def _once(fresh: Float64[Tensor, "B L"], kept: Float64[Tensor, "B L"], k: Count) -> Float64[Tensor, "B L"]:
    """Fresh numbers for sequences at their first call, kept ones for others."""
    first = torch.as_tensor(k == 0, device=fresh.device).view(-1, 1)
    return torch.where(first, fresh, kept)
