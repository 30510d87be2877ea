"""Consistency distillation, Alg. (consistency_training): predictions at two states of one path are made to agree.

The student predicts at x_t what a teacher, its own slowly moving copy, predicts at x_s with s = t - delta. Repeated
with growing delta this carries what is known near the data to where sampling begins.

Shapes: B sequences of L positions, x_s, x_t and x_1 [B, L], s and t [B]; N packed positions at which x_t is hidden, n
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
from multimdm.objectives.teaching import Lesson
from multimdm.process import Path, Process
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
        require(
            self.settings.coupling != "anchored" or self.process.num_masks > 0,
            "coupling anchored is for masks, which are where a path ends; uniform states have gumbel and gaussian",
        )
        require(
            (self.settings.coupling == "anchored") == self.process.tied_noise,
            "coupling must be anchored for a process whose noise is tied to the text (`process.tied()`), and for no "
            f"other; got {self.settings.coupling} for {self.process!r}",
        )

    def taught_by(self, teacher: Network) -> "Consistency":
        """The objective with this teacher."""
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
        s = batch.times.to(batch.ids.device) * (1 - delta)
        t = (s + delta).clamp_max(1.0)
        path = batch.path(self.process)
        apart = self.settings.visible_target == "skip"
        pair = couple(path, batch.ids, s, t, self.settings.coupling, batch.generator, apart)
        x_s = batch.keep(pair.x_s)
        x_t = batch.keep(pair.x_t)
        if self.context is not None:
            mistakes = self.context.mistakes(network, self.process, batch, x_t, t)
            if mistakes is not None:
                x_s = torch.where(self.process.active(x_s), x_s, mistakes.in_place(x_s))
                x_t = mistakes.in_place(x_t)
        return self.compare(network, batch, x_s, s, x_t, t, path)

    def compare(
        self,
        network: Network,
        batch: Batch,
        x_s: Int64[Tensor, "B L"],
        s: Float[Tensor, " B"],
        x_t: Int64[Tensor, "B L"],
        t: Float[Tensor, " B"],
        path: Path | None = None,
    ) -> Sums:
        """The student at x_t against the teacher at x_s, where the student has something to predict.

        For uniform states that is everywhere, and what is compared is what the networks predict, the leave-one-out
        distribution, as DUO-DCD does. For masks it is the posteriors, whatever the process takes predictions for: the
        theorem is about them. Where x_1 is kept, both know it: they are shown it, or their predictions are conditioned
        on it by Bayes' rule (`Path.condition`). In the second case a teacher that sees the designated mask has only its
        tokens left, while the student does not see it yet: the two are compared among these, and -log of the mass that
        the student gives them is added, whatever `visible_target` says: no token shows there, and without it the masses
        would be learnt only from pairs whose x_s names no mask.
        """
        if self.teacher is None:
            raise ValueError("consistency needs a teacher: objective.taught_by(network)")
        path = batch.path(self.process) if path is None else path
        asked = batch.asked(self.process.active(x_t))
        where = asked.nonzero(as_tuple=True)  # once: on a GPU it waits for the positions
        clean = batch.ids[where]
        weight = of_rows(batch.weight, where[0])
        # The teacher is asked where x_s is hidden too: the n-th such row is row number n of its lesson.
        taught = self.process.active(x_s)[where]
        taught_before = F.pad(taught.cumsum(0), (1, 0)).cpu()
        num_taught = int(taught_before[len(taught)])
        # First the rows that are taught, then the others, so that chunks take theirs by number and no one waits.
        order = torch.argsort(~taught, stable=True)
        teacher_asked = asked & self.process.active(x_s)
        lesson = Lesson(self.teacher, path.shown(x_s), s, teacher_asked, batch.valid)
        student_says = self._compared(path, x_t, t, where)
        teacher_says = self._compared(path, x_s, s, tuple(index[order[:num_taught]] for index in where))

        def reduce(logits: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
            taught_rows = slice(int(taught_before[rows.start]), int(taught_before[rows.stop]))
            all_taught = taught_rows.stop - taught_rows.start == len(logits)
            logits = student_says(logits, rows)
            hidden_rows = rows if all_taught else order[taught_rows]
            hidden = logits if isinstance(hidden_rows, slice) else logits[beside(hidden_rows - rows.start, logits)]

            # D(f_t(. | x_t), f_s(. | x_s)), among the tokens that x_1 leaves to the teacher
            target = teacher_says(lesson.logits(taught_rows), taught_rows)
            compared = hidden if path.x_1 is None else _among(hidden, target)
            matching = total(divergence_of_logits(self.settings.divergence, compared, target), weight, hidden_rows)

            # -log f_t(x_0 | x_t) where x_0 shows at s, and -log of the mass of those tokens where it does not
            revealed = matching.new_zeros(())
            if not all_taught:
                first = num_taught + rows.start - taught_rows.start
                last = num_taught + rows.stop - taught_rows.stop
                shown_rows = order[first:last]
                shown = logits[beside(shown_rows - rows.start, logits)]
                revealed = self._revealed(shown, clean[shown_rows], weight, shown_rows)
            if path.x_1 is not None:
                mass = at_home(hidden.logsumexp(-1) - compared.logsumexp(-1))
                revealed = revealed + total(mass, weight, hidden_rows)
            return matching + revealed, matching.detach(), revealed.detach()

        loss, matching, revealed = network(path.shown(x_t), t, asked, batch.valid, reduce)
        return Sums(loss, {"matching": matching, "revealed": revealed})

    def _compared(
        self, path: Path, x: Tensor, t: Tensor, where: tuple[Tensor, ...]
    ) -> Callable[[Tensor, slice], Tensor]:
        """What is compared of a prediction, for some of the packed rows: posteriors of masks, else as it is."""
        if self.process.num_masks == 0:
            return lambda logits, rows: logits
        packed = path.at(where)
        state = x[where]
        time = t[where[0]]
        return lambda logits, rows: packed.at(rows).posterior_logits(logits, state[rows], time[rows])

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
