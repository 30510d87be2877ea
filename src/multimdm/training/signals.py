"""A run that is asked to stop finishes its step and saves it first."""

import torch
from torch import Tensor

from multimdm._stopping import Listener
from multimdm.training.engine import Engine


class Signals(Listener):
    """Listens for requests to stop while a run lasts."""

    def __init__(self) -> None:
        super().__init__("the step is finished and saved")
        self.stopping = False
        """Whether all ranks are to stop after this step."""

    def __enter__(self) -> "Signals":
        super().__enter__()
        return self

    def sum(self, engine: Engine, values: Tensor) -> Tensor:
        """The sum over ranks that every step needs; a request that any rank has heard travels with it to all."""
        if engine.ranks == 1:
            self.stopping = self.asked
            return engine.sum(values)
        sums = engine.sum(torch.cat([values, values.new_tensor([float(self.asked)])]))
        self.stopping = bool(sums[-1] > 0)
        return sums[:-1]
