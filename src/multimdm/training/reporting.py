"""What is reported of the steps since the last report: means, the loss by time, and what the steps took."""

from collections import defaultdict

import torch
from torch import Tensor

from multimdm.objectives.base import TIMES
from multimdm.process import MultiMask
from multimdm.training.engine import Engine
from multimdm.training.gpus import flops_per_token, utilisation
from multimdm.training.job import Job


class Window:
    """The steps since the last report."""

    def __init__(self, seconds: dict[str, float]) -> None:
        """`seconds`: the clocks of the run, by what its time goes into."""
        self._steps, self._tokens, self._seconds = 0, 0, 0.0
        self._sums: dict[str, float] = defaultdict(float)
        self._clocks, self._began = seconds, dict(seconds)
        self._by_time = torch.zeros(2, TIMES, dtype=torch.float64)

    def add(self, numbers: dict[str, float], tokens: int, by_time: Tensor, seconds: float) -> None:
        """One step: its terms, how many tokens it had, their losses and numbers by time, how long it took."""
        self._steps, self._tokens, self._seconds = self._steps + 1, self._tokens + tokens, self._seconds + seconds
        self._by_time += by_time
        for name, value in numbers.items():
            self._sums[name] += value

    def means(self) -> dict[str, float]:
        """Of what steps tell."""
        means = {name: value / self._steps for name, value in self._sums.items()}
        return {**means, "tokens_per_second": self._tokens / self._seconds}

    def losses_by_time(self) -> dict[str, float]:
        """The loss in nats per token by the times of the sequences, where there were any."""
        losses, tokens = self._by_time.tolist()
        return {f"loss_{part / TIMES:g}": losses[part] / tokens[part] for part in range(TIMES) if tokens[part]}

    def cost(self, job: Job, engine: Engine) -> dict[str, float]:
        """Seconds per step, for data and for the step itself; on a GPU its memory at most, and how well it is used."""
        data, step = self._seconds_of("data"), self._seconds_of("step")
        cost = {"data_seconds": data, "step_seconds": step}
        if engine.device.type == "cuda":
            cost["peak_memory"] = float(torch.cuda.max_memory_allocated(engine.device))
        asked = 0.5 if isinstance(job.model.process, MultiMask) else 1.0
        each = flops_per_token(engine.network, job.source.length, asked, job.teacher is not None)
        tokens = self._tokens / self._steps
        share = utilisation(each * tokens / engine.ranks, data + step, engine.device)
        return cost if share is None else {**cost, "utilisation": share}

    def _seconds_of(self, what: str) -> float:
        """Per step: of reading data, say, or of the step itself."""
        return (self._clocks[what] - self._began.get(what, 0.0)) / self._steps
