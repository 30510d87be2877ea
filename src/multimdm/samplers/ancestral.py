"""Ancestral sampling: Alg. (sampling), and with a distilled network Alg. (few_step_generation).

Shapes: x_t, x_s and hypotheses are [B, L]; k and the times t, s are numbers, or [B] where sequences share calls.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool
from torch import Tensor

from multimdm.process import Process, Time
from multimdm.samplers.batch import Batch, Count
from multimdm.samplers.choice import USUAL, Choice
from multimdm.samplers.corrector import most_remasked, remask_sample
from multimdm.samplers.loop import Moved
from multimdm.samplers.process_checks import masked_process, refuse_tied
from multimdm.samplers.question import Hypotheses, Question, ask


@dataclass(frozen=True)
class Ancestral:
    """x_s ~ p^theta_{s|t}(. | x_t), position by position. Eqs. (model_reverse_kernel_main, consistency_reverse_ansatz).

    A hypothesis of the clean token is drawn from the prediction, then x_s from the exact kernel given the hypothesis:
    two numbers per active position, and in law the same as one draw from the averaged kernel. With tied noise a
    position that is neither revealed nor designated returns to its own x_1.
    """

    grid: tuple[float, ...]
    """Times from 1 down to 0, as `time_grid` makes them."""
    choice: Choice = USUAL
    greedy_last: bool = False
    """Take the most probable clean token in the last step instead of drawing it."""
    corrector: float | int = 0.0
    """Share of the visible tokens that every step masks again, as far as the marginals allow (`corrector.py`)."""

    @property
    def num_steps(self) -> int:
        """K."""
        return len(self.grid) - 1

    @property
    def revises(self) -> bool:
        """Whether visible tokens may be masked again."""
        return self.corrector > 0

    def check(self, process: Process, free: Bool[Tensor, "B L"] | None = None) -> None:
        """A corrector needs masks, and noise that may be forgotten."""
        if self.corrector:
            masked_process(process, "corrector")
            refuse_tied(process, "corrector")

    def question(self, process: Process, batch: Batch, k: Count) -> Question:
        """Clean tokens at all active positions, at t_{K-k}."""
        return ask(process, batch, self._time(k), self.choice_at(k))

    def move(self, question: Question, hypotheses: Hypotheses, k: Count) -> Moved:
        """Draw x_s given x_t, from t = t_{K-k} to the next time s."""
        process = question.process
        batch = question.batch
        t = question.t
        s = self._time(k + 1)
        if self.revises:
            assert not isinstance(t, Tensor)
            assert not isinstance(s, Tensor)
            # A share sigma of the visible tokens is masked again, as far as the law of x_s stays p_s.
            sigma = min(float(self.corrector), most_remasked(process, s, t))
            x_s = remask_sample(process, hypotheses.clean, batch.x, s, t, sigma, batch.generator)
        else:
            # x_s ~ p_{s|t}(. | x_t, x_0 = hypothesis)
            x_s = question.path.reverse_sample(hypotheses.clean, batch.x, s, t, batch.generator)
        return Moved(torch.where(batch.free, x_s, batch.x), s)

    def choice_at(self, k: Count) -> Choice:
        """How move k chooses clean tokens; sequences that move together are all at their last one, or none is."""
        if not self.greedy_last:
            return self.choice
        last = torch.as_tensor(k) == self.num_steps - 1
        return replace(self.choice, greedy=True) if bool(last.all()) else self.choice

    def _time(self, k: Count) -> Time:
        """t_{K-k}, for all sequences or for each."""
        if not isinstance(k, Tensor):
            return self.grid[k]
        return torch.tensor(self.grid, dtype=torch.float64, device=k.device)[k]
