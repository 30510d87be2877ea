"""Consistency distillation, Alg. (consistency_training): predictions at two states of one path are made to agree.

The student predicts at x_t what a teacher, its own slowly moving copy, predicts at x_s with s = t - delta. Repeated
with growing delta this carries what is known near the data to where sampling begins.
"""

from collections.abc import Callable
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional as F

from multimdm.objectives.base import Batch, Network, Sums, of_rows, total
from multimdm.objectives.context import Context
from multimdm.objectives.coupling import couple
from multimdm.objectives.divergence import divergence, divergence_of_logits
from multimdm.objectives.paths import FreePath, TiedPath, tied_path
from multimdm.objectives.settings import ConsistencySettings
from multimdm.objectives.teaching import Lesson
from multimdm.process import MultiMask, Process, Uniform
from multimdm.process.anchored import told_of_end
from multimdm.process.checks import require
from multimdm.process.cross_entropy import cross_entropy
from multimdm.process.places import at_home, beside
from multimdm.process.precision import widened


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
            self.settings.coupling != "gaussian" or isinstance(self.process, Uniform),
            "coupling gaussian is DUO's, for uniform states; masks have gumbel, markov and independent",
        )
        require(
            self.settings.coupling != "anchored" or isinstance(self.process, MultiMask),
            "coupling anchored is for masks, which are where a path ends; uniform states have gumbel and gaussian",
        )

    def taught_by(self, teacher: Network) -> "Consistency":
        """With this teacher."""
        return replace(self, teacher=teacher)

    def next_teacher(self, step: int, steps: int) -> float:
        """theta_bar <- mu theta_bar + (1 - mu) theta, or a copy between rounds."""
        if self.settings.teacher == "ema":
            return 1 - self.settings.mu
        return float(self.settings.ends_round(step, steps))

    def settings_at(self, step: int, steps: int) -> dict[str, float]:
        """Step size and round."""
        return self.settings.settings_at(step, steps)

    def __call__(self, network: Network, batch: Batch) -> Sums:
        """One pair of states per sequence, t ~ Unif(delta, 1) and s = t - delta."""
        delta = self.settings.size(batch.step, batch.steps)
        late = batch.times.to(batch.ids.device) * (1 - delta)
        s, t = late, late + delta
        t, end = t.clamp_max(1.0), None
        if self.settings.coupling == "anchored":
            assert isinstance(self.process, MultiMask)
            end = tied_path(self.process, batch).end
        apart = self.settings.visible_target == "skip"
        states = couple(self.process, batch.ids, s, t, self.settings.coupling, batch.generator, end, apart)
        x_s, x_t = (batch.keep(x) for x in states)
        if self.context is not None:
            mistakes = self.context.mistakes(network, self.process, batch, x_t, t)
            if mistakes is not None:
                x_s = torch.where(self.process.active(x_s), x_s, mistakes.in_place(x_s))
                x_t = mistakes.in_place(x_t)
        return self.compare(network, batch, x_s, s, x_t, t, end)

    def compare(
        self,
        network: Network,
        batch: Batch,
        x_s: Int64[Tensor, "B L"],
        s: Float[Tensor, " B"],
        x_t: Int64[Tensor, "B L"],
        t: Float[Tensor, " B"],
        end: Int64[Tensor, "B L"] | None = None,
    ) -> Sums:
        """The student at x_t against the teacher at x_s, where the student has something to predict.

        For uniform states that is everywhere, and what is compared is what the networks predict, the leave-one-out
        distribution, as DUO-DCD does. For masks it is the posteriors, whatever the process takes predictions for: the
        theorem is about them. With `end`, the x_1 of the paths, both know it: they are shown it, or Bayes' rule
        tells them (`told_of_end`). In the second case a teacher that sees the designated mask has only its tokens left,
        while the student does not see it yet: the two are compared among these, and -log of the mass that the student
        gives them is added, whatever `visible_target` says: no token shows there, and without it the masses would be
        learnt only from pairs whose x_s names no mask.
        """
        if self.teacher is None:
            raise ValueError("consistency needs a teacher: objective.taught_by(network)")
        asked = batch.asked(self.process.active(x_t))
        where = asked.nonzero(as_tuple=True)  # once: on a GPU it waits for the positions
        taught, clean = self.process.active(x_s)[where], batch.ids[where]
        weight = of_rows(batch.weight, where[0])
        shown = asked & self.process.active(x_s)
        path = self._path(end)
        lesson = Lesson(self.teacher, path.shown(x_s), s, shown, batch.valid)
        told, teacher_told = (self._told(*state, end, rows) for state, rows in (((x_t, t), asked), ((x_s, s), shown)))
        rows_before = F.pad(taught.cumsum(0), (1, 0)).cpu()
        # First the rows that the teacher has something to say about, then the others: chunks take theirs by number.
        order, told_rows = torch.argsort(~taught, stable=True), int(rows_before[-1])

        def reduce(logits: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
            first, last = int(rows_before[rows.start]), int(rows_before[rows.stop])
            logits, all_hidden = told(logits, rows), last - first == len(logits)
            unknown = rows if all_hidden else order[first:last]
            hidden = logits if isinstance(unknown, slice) else logits[beside(unknown - rows.start, logits)]
            target = teacher_told(lesson.logits(slice(first, last)), slice(first, last))
            named = None if end is None else _among(hidden, target)
            distance = divergence_of_logits(self.settings.divergence, hidden if named is None else named, target)
            matching = total(distance, weight, unknown)
            revealed = matching.new_zeros(())
            if not all_hidden:
                known = order[told_rows + rows.start - first : told_rows + rows.stop - last]
                revealed = self._revealed(logits[beside(known - rows.start, logits)], clean[known], weight, known)
            if named is not None:
                revealed = revealed + total(at_home(hidden.logsumexp(-1) - named.logsumexp(-1)), weight, unknown)
            return matching + revealed, matching.detach(), revealed.detach()

        loss, matching, revealed = network(path.shown(x_t), t, asked, batch.valid, reduce)
        return Sums(loss, {"matching": matching, "revealed": revealed})

    def _path(self, end: Tensor | None) -> FreePath | TiedPath:
        """To x_1, if it is known."""
        if end is None:
            return FreePath(self.process)
        assert isinstance(self.process, MultiMask)
        return TiedPath(self.process, end)

    def _told(self, x: Tensor, t: Tensor, end: Tensor | None, positions: Tensor) -> Callable[[Tensor, slice], Tensor]:
        """What the own mask, or x_1 if it is known, adds to the prediction in some of the packed rows."""
        process = self.process
        if end is None and not (isinstance(process, MultiMask) and process.readout == "context"):
            return lambda logits, rows: logits
        assert isinstance(process, MultiMask)
        where = positions.nonzero(as_tuple=True)
        state, time = x[where], t[where[0]]
        if end is None:
            return lambda logits, rows: process.posterior_logits(logits, state[rows], time[rows])
        last = end[where]
        return lambda logits, rows: told_of_end(process, logits, state[rows], last[rows], time[rows])

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


def _among(logits: Float[Tensor, "n V"], target: Float[Tensor, "n V"]) -> Float[Tensor, "n V"]:
    """Only the tokens that the target holds possible."""
    return logits.masked_fill(target == -torch.inf, -torch.inf)


def _smoothed(
    clean: Int64[Tensor, " n"], possible: Bool[Tensor, "n V"], share: float, dtype: torch.dtype
) -> Float[Tensor, "n V"]:
    """log((1 - share) e_clean + share uniform), the latter over what the network can predict at all."""
    uniform = possible.to(dtype) * (share / possible.sum(-1, keepdim=True).to(dtype))
    return uniform.scatter_add(-1, clean[:, None], uniform.new_full((len(clean), 1), 1 - share)).log()
