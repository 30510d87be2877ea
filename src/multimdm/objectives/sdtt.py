"""SDTT: the student learns to do in one step what the teacher does in several.

The teacher goes some reverse steps from x_t. Each position's target is the prediction by which it was revealed; where
it was not, the last one. In the next round the student is the teacher, and its steps are longer.

Shapes: B sequences of L positions, x_t [B, L], t [B]; N packed positions that the student predicts.
"""

from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from multimdm.objectives.base import Batch, Network, Sums, of_rows, total
from multimdm.objectives.context import Context
from multimdm.objectives.divergence import divergence_of_logits
from multimdm.objectives.settings import SdttSettings
from multimdm.objectives.teaching import Lesson, check_untied
from multimdm.process import Process
from multimdm.process.draws import draw_token, invert_cdf, uniform
from multimdm.process.places import chunk_rows, fuses, widened

_CHUNK_ENTRIES = 2**23
"""Entries of a chunk of the teacher's probabilities while it draws."""
_COMPAT_EPSILON = 1e-5
"""The least time of the published code."""


class Targets(NamedTuple):
    """What the student is to predict at the packed positions."""

    lesson: Lesson
    """The teacher's predictions at all of them."""
    state: Int64[Tensor, " N"]
    """The states at which the teacher made them."""
    time: Float[Tensor, " N"]
    """The times at which it did."""


@plain_dataclass(frozen=True)
class Sdtt:
    """Self-distillation through time, summed over the positions that the student predicts."""

    process: Process
    settings: SdttSettings
    teacher: Network | None = None
    context: Context | None = None
    """Mistakes in the states from which both go on."""

    def __post_init__(self) -> None:
        if self.context is not None:
            self.context.check(self.process)
        check_untied(self.process)

    @property
    def teacher_calls(self) -> int:
        """One for each of its reverse steps."""
        return self.settings.teacher_steps

    def taught_by(self, teacher: Network) -> "Sdtt":
        """The objective with this teacher."""
        return replace(self, teacher=teacher)

    def next_teacher(self, step: int, steps: int) -> float:
        """The student becomes the teacher at the end of a round."""
        return float(self.settings.ends_round(step, steps))

    def settings_at(self, step: int, steps: int) -> dict[str, float]:
        """Step size of the teacher, and round."""
        return self.settings.settings_at(step, steps)

    def __call__(self, network: Network, batch: Batch) -> Sums:
        """One x_t per sequence, t ~ Unif(span, 1) where the span is that of the teacher's steps."""
        delta = self.settings.size(batch.step, batch.steps)
        span = min(1.0, delta * self.settings.teacher_steps)
        t = (span + batch.times.to(batch.ids.device) * (1 - span)).clamp_max(1.0)
        x_t = batch.keep(self.process.corrupt(batch.ids, t, batch.generator))
        if self.context is not None:
            x_t = self.context.shown(network, self.process, batch, x_t, t)
        asked = batch.asked(self.process.active(x_t))
        where = asked.nonzero(as_tuple=True)  # once: on a GPU it waits for the positions
        targets = self._simulate(batch, x_t, t, delta, asked, where)
        state = x_t[where]
        time = t[where[0]]
        weight = of_rows(batch.weight, where[0])

        # sum over positions of D(f_theta(. | x_t), f_teacher(. | x_u)), u the time of the prediction that revealed it
        def reduce(logits: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
            says = targets.lesson.logits(rows)
            target = self.process.posterior_logits(says, targets.state[rows], targets.time[rows])
            student = self.process.posterior_logits(logits, state[rows], time[rows])
            loss = total(divergence_of_logits(self.settings.divergence, student, target), weight, rows)
            return loss, loss.detach()

        loss, matching = network(x_t, t, asked, batch.valid, reduce)
        return Sums(loss, {"matching": matching})

    def times(self, t: Float[Tensor, " B"], delta: float) -> list[tuple[Tensor, Tensor]]:
        """The beginning and the end of each of the teacher's steps: t, t - delta, t - 2 delta, ...

        The published code interpolates between t and the last time with the weight 1 - t in place of one minus the
        weight of t, and includes both; `compat` does the same.
        """
        steps = self.settings.teacher_steps
        if not self.settings.compat:
            grid = [(t - i * delta).clamp(0.0, 1.0) for i in range(steps + 1)]
            return list(pairwise(grid))
        # w t + (1 - t) (t - delta steps), with w from 1 to 0
        last = t - delta * steps
        weights = torch.linspace(1, 0, steps, dtype=t.dtype).tolist()
        starts = [(t * weight + (1 - t) * last).clamp(_COMPAT_EPSILON, 1.0) for weight in weights]
        return [(start, (start - delta).clamp_min(0.0)) for start in starts]

    @torch.no_grad()
    def _simulate(
        self,
        batch: Batch,
        x_t: Int64[Tensor, "B L"],
        t: Float[Tensor, " B"],
        delta: float,
        asked: Bool[Tensor, "B L"],
        where: tuple[Int64[Tensor, " N"], ...],
    ) -> Targets:
        """The teacher's reverse steps from x_t, and what it predicted on the way."""
        if self.teacher is None:
            raise ValueError("SDTT needs a teacher: objective.taught_by(network)")
        x = x_t
        target = None
        state = x_t[where]
        time = t[where[0]]
        row_of = torch.zeros_like(x_t).index_put(where, torch.arange(len(state), device=x_t.device))
        for start, after in self.times(t, delta):
            hidden = asked & self.process.active(x)
            lesson = Lesson(self.teacher, x, start, hidden, batch.valid)
            # Where a token is still hidden, the newer prediction counts.
            if target is None:
                target = lesson
                there = where
            else:
                there = hidden.nonzero(as_tuple=True)
                target.replace(row_of[there], lesson)
            still = hidden[where]
            state = torch.where(still, x[where], state)
            time = torch.where(still, start[where[0]], time)
            # x_after ~ p(. | x_start, clean) with clean ~ f_teacher(. | x_start)
            clean = x.clamp_max(self.process.vocab_size - 1)
            u = uniform(x.shape, batch.generator, x.device)[there]
            clean[there] = self._draw(lesson, x[there], start[there[0]], u)
            x = torch.where(hidden, self.process.reverse_sample(clean, x, after, start, batch.generator), x)
        assert target is not None
        return Targets(target, state, time)

    def _draw(
        self,
        lesson: Lesson,
        x: Int64[Tensor, " N"],
        t: Float[Tensor, " N"],
        u: Float64[Tensor, " N"],
    ) -> Int64[Tensor, " N"]:
        """Clean tokens from the teacher's posterior, by one number each."""
        drawn = torch.empty_like(x)
        rows_at_once = chunk_rows(self.process.vocab_size, x, _CHUNK_ENTRIES)
        for first in range(0, len(lesson), rows_at_once):
            rows = slice(first, min(first + rows_at_once, len(lesson)))
            # x_0 ~ f_teacher(. | x_t)
            logits = lesson.logits(rows)
            if fuses(logits):
                drawn[rows] = draw_token(self.process.posterior_logits(logits, x[rows], t[rows]), u[rows])
            else:
                weights = self.process.posterior_weights(widened(logits).softmax(-1), x[rows], t[rows])
                drawn[rows] = invert_cdf(weights, u[rows])
        return drawn
