"""Consistency distillation, Alg. (consistency_training): predictions at two states of one path are made to agree.

The student predicts at x_t what a teacher, its own slowly moving copy, predicts at x_s with s = t - delta. Repeated
with growing delta this carries what is known near the data to where sampling begins.

Shapes: B sequences of L positions, x_s and x_t [B, L], s and t [B]; N packed positions at which x_t is hidden, n
of them in a chunk of the network's head.
"""

from collections.abc import Callable
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional as F

from multimdm._checks import require
from multimdm.objectives.base import Batch, Network, Sums, of_rows, total
from multimdm.objectives.context import Context
from multimdm.objectives.coupling import couple
from multimdm.objectives.divergence import divergence, divergence_of_logits
from multimdm.objectives.settings import ConsistencySettings
from multimdm.objectives.teaching import Lesson, check_untied
from multimdm.process import Process
from multimdm.process.fused_readout import cross_entropy
from multimdm.process.places import at_home, beside, widened


@plain_dataclass(frozen=True)
class Consistency:
    """Eq. (consistency_distillation_loss_main), or with reverse KL the one of App. C, summed over tokens."""

    process: Process
    settings: ConsistencySettings
    teacher: Network | None = None
    context: Context | None = None
    """Mistakes that student and teacher are shown alike, where both see a token."""

    def __post_init__(self) -> None:
        if self.context is not None:
            self.context.check(self.process)
        require(
            self.settings.coupling != "gaussian" or self.process.num_masks == 0,
            "coupling gaussian is DUO's, for uniform states; masks have gumbel, markov and independent",
        )
        check_untied(self.process)

    @property
    def teacher_calls(self) -> int:
        """One call, at x_s."""
        return 1

    def taught_by(self, teacher: Network) -> "Consistency":
        """The objective with this teacher."""
        return replace(self, teacher=teacher)

    def next_teacher(self, step: int, steps: int) -> float:
        """theta_bar <- mu theta_bar + (1 - mu) theta, or a copy between rounds."""
        if self.settings.teacher == "ema":
            return 1 - self.settings.mu
        return float(self.settings.ends_round(step, steps))

    def settings_at(self, step: int, steps: int) -> dict[str, float]:
        """The step size, and the round."""
        return self.settings.settings_at(step, steps)

    def __call__(self, network: Network, batch: Batch) -> Sums:
        """One pair of states per sequence, t ~ Unif(delta, 1) and s = t - delta."""
        delta = self.settings.size(batch.step, batch.steps)
        # s ~ Unif(0, 1 - delta), t = s + delta
        s = batch.times.to(batch.ids.device) * (1 - delta)
        t = (s + delta).clamp_max(1.0)
        apart = self.settings.visible_target == "skip"
        pair = couple(self.process, batch.ids, s, t, self.settings.coupling, batch.generator, apart)
        x_s = batch.keep(pair.x_s)
        x_t = batch.keep(pair.x_t)
        if self.context is not None:
            mistakes = self.context.mistakes(network, self.process, batch, x_t, t)
            if mistakes is not None:
                x_s = torch.where(self.process.active(x_s), x_s, mistakes.in_place(x_s))
                x_t = mistakes.in_place(x_t)
        return self.compare(network, batch, x_s, s, x_t, t)

    def compare(
        self,
        network: Network,
        batch: Batch,
        x_s: Int64[Tensor, "B L"],
        s: Float[Tensor, " B"],
        x_t: Int64[Tensor, "B L"],
        t: Float[Tensor, " B"],
    ) -> Sums:
        """The student at x_t against the teacher at x_s, where the student has something to predict.

        For uniform states that is everywhere, and what is compared is what the networks predict, the leave-one-out
        distribution, as DUO-DCD does. For masks it is the posteriors, whatever the process takes predictions for: the
        theorem is about them.
        """
        if self.teacher is None:
            raise ValueError("consistency needs a teacher: objective.taught_by(network)")
        asked = batch.asked(self.process.active(x_t))
        where = asked.nonzero(as_tuple=True)  # once: on a GPU it waits for the positions
        clean = batch.ids[where]
        weight = of_rows(batch.weight, where[0])
        # The teacher is asked where x_s is hidden too.
        hidden_at_s = self.process.active(x_s)
        taught = _Taught(hidden_at_s[where])
        lesson = Lesson(self.teacher, x_s, s, asked & hidden_at_s, batch.valid)
        student_says = self._compared(x_t, t, where)
        teacher_says = self._compared(x_s, s, tuple(index[taught.all] for index in where))

        def reduce(logits: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
            of_lesson = taught.of_lesson(rows)
            all_taught = of_lesson.stop - of_lesson.start == len(logits)
            logits = student_says(logits, rows)
            hidden_rows = rows if all_taught else taught.order[of_lesson]
            hidden = logits if isinstance(hidden_rows, slice) else logits[beside(hidden_rows - rows.start, logits)]

            # D(f_t(. | x_t), f_s(. | x_s))
            target = teacher_says(lesson.logits(of_lesson), of_lesson)
            matching = total(divergence_of_logits(self.settings.divergence, hidden, target), weight, hidden_rows)

            # -log f_t(x_0 | x_t) where x_0 shows at s
            revealed = matching.new_zeros(())
            if not all_taught:
                shown_rows = taught.others(rows)
                shown = logits[beside(shown_rows - rows.start, logits)]
                revealed = self._revealed(shown, clean[shown_rows], weight, shown_rows)
            return matching + revealed, matching.detach(), revealed.detach()

        loss, matching, revealed = network(x_t, t, asked, batch.valid, reduce)
        return Sums(loss, {"matching": matching, "revealed": revealed})

    def _compared(self, x: Tensor, t: Tensor, where: tuple[Tensor, ...]) -> Callable[[Tensor, slice], Tensor]:
        """What is compared of a prediction, for some of the packed rows: posteriors of masks, else as it is."""
        if self.process.num_masks == 0:
            return lambda logits, rows: logits
        state = x[where]
        time = t[where[0]]
        return lambda logits, rows: self.process.posterior_logits(logits, state[rows], time[rows])

    def _revealed(
        self, logits: Float[Tensor, "n V"], clean: Int64[Tensor, " n"], weight: Tensor | None, rows: Int64[Tensor, " n"]
    ) -> Tensor:
        """Against the boundary condition f_0 = e_{x_0}: the token is known at s."""
        wide = widened(logits)
        match self.settings.visible_target:
            case "cross_entropy":
                if weight is None:  # torch's own sum, which rounds otherwise than the sum of what it gives row by row
                    return cross_entropy(wide, clean, "sum")
                return total(cross_entropy(wide, clean, "none"), weight, rows)
            case "smoothed":
                target = _smoothed(beside(clean, wide), wide.detach() > -torch.inf, self.settings.smoothing, wide.dtype)
                return total(divergence(self.settings.divergence, wide, target), weight, rows)
            case "skip":
                return at_home(wide.new_zeros(()))


class _Taught:
    """Which of the student's packed rows the teacher is asked about too; row n of its lesson is the n-th of them."""

    def __init__(self, taught: Bool[Tensor, " N"]) -> None:
        self._before = F.pad(taught.cumsum(0), (1, 0)).cpu()
        self._num = int(self._before[len(taught)])
        self.order = torch.argsort(~taught, stable=True)
        """First the rows that are taught, then the others, so that chunks take theirs by number and no one waits."""

    @property
    def all(self) -> Int64[Tensor, " taught"]:
        """The rows that are taught."""
        return self.order[: self._num]

    def of_lesson(self, rows: slice) -> slice:
        """The rows of the lesson that are for a chunk of the student's."""
        return slice(int(self._before[rows.start]), int(self._before[rows.stop]))

    def others(self, rows: slice) -> Int64[Tensor, " n"]:
        """The rows of a chunk that are not taught."""
        of_lesson = self.of_lesson(rows)
        return self.order[self._num + rows.start - of_lesson.start : self._num + rows.stop - of_lesson.stop]


def _smoothed(
    clean: Int64[Tensor, " n"], possible: Bool[Tensor, "n V"], share: float, dtype: torch.dtype
) -> Float[Tensor, "n V"]:
    """log((1 - share) e_clean + share uniform), the latter over what the network can predict at all."""
    uniform = possible.to(dtype) * (share / possible.sum(-1, keepdim=True).to(dtype))
    return uniform.scatter_add(-1, clean[:, None], uniform.new_full((len(clean), 1), 1 - share)).log()
