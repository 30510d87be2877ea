"""Ancestral sampling: Alg. (sampling), and with a distilled network Alg. (few_step_generation)."""

from dataclasses import dataclass, replace

import torch

from multimdm.process import Process
from multimdm.samplers.batch import Batch, Network
from multimdm.samplers.clean import USUAL, Choice, draw_clean
from multimdm.samplers.corrector import most_remasked, remask_sample
from multimdm.samplers.loop import Moved
from multimdm.samplers.tied import refuse_tied, reverse_step


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

    def choice_at(self, k: int) -> Choice:
        """How step k chooses clean tokens."""
        last = k == self.num_steps - 1
        return replace(self.choice, greedy=True) if last and self.greedy_last else self.choice

    def __call__(self, network: Network, process: Process, batch: Batch, k: int) -> Moved:
        """From t_{K-k} to the next time."""
        t, s = self.grid[k], self.grid[k + 1]
        clean = draw_clean(network, process, batch, t, self.choice_at(k)).clean
        if self.revises:
            refuse_tied(process, "a corrector")
            sigma = min(float(self.corrector), most_remasked(process, s, t))
            x_s = remask_sample(process, clean, batch.x, s, t, sigma, batch.generator)
        else:
            x_s = reverse_step(process, clean, batch, s, t)
        return Moved(torch.where(batch.free, x_s, batch.x), s)
