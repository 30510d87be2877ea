"""What a run tells: the lines that it opens with, and figures of the steps since the last report."""

from collections import defaultdict

import torch
from torch import Tensor

from multimdm.objectives import Distillation
from multimdm.objectives.base import TIMES
from multimdm.pipeline import Model
from multimdm.pipeline.about import kind_of, size_of
from multimdm.training.engine import Engine
from multimdm.training.gpus import flops_per_token, share_asked, utilisation
from multimdm.training.job import Job
from multimdm.training.schema import TrainingRecipe
from multimdm.training.sources import PreparedSource, Source, TalesSource


def header(
    name: str, model: Model, source: Source, recipe: TrainingRecipe, engine: Engine, validated: int
) -> list[str]:
    """What is trained on what, in lines. `validated` is the number of held-out sequences that are used."""
    trained, every = (sum(x.numel() for x in weights) for weights in (engine.weights, engine.network.parameters()))
    some = "" if trained == every else f", of which {trained / 1e6:,.2f} million are trained"
    lines = [
        f"{name}: {kind_of(model.process)}; {size_of(engine.network)}{some}",
        f"{name}: {_data(source, recipe)}",
        f"{name}: on {_device(engine)}, in {'bfloat16' if engine.bfloat16 else 'float32'}",
    ]
    if validated == 0:
        lines.append(f"{name}: nothing will be validated: {_why(source, recipe)}")
    return lines


def _data(source: Source, recipe: TrainingRecipe) -> str:
    """What there is, and how much of it the budget takes."""
    train, L = recipe.train, source.length
    sequences = train.steps * train.batch_size
    meant = f"{_count(sequences)} texts, {_count(sequences * L)} tokens"
    budget = f"{train.steps:,} steps of {train.batch_size:,} are {meant}"
    if isinstance(source, TalesSource):
        return f"Tales, new stories of {L} tokens without end; {budget}"
    if isinstance(source, PreparedSource):
        counts = source.training.manifest.counts
        there = f"{counts.sequences:,} texts of {L:,} tokens, {_count(counts.tokens)} without padding"
        return f"{recipe.data.path}, {there}; {budget}, {number_of(sequences / counts.sequences)} epochs"
    return f"no data: a teacher writes all texts, of {L:,} tokens; {budget}"


def number_of(epochs: float) -> str:
    """The number with three digits, or with as many as a large one has."""
    return f"{epochs:.3g}" if epochs < 1000 else f"{epochs:,.0f}"


def _device(engine: Engine) -> str:
    return str(engine.device) if engine.ranks == 1 else f"{engine.ranks} ranks, {engine.device.type}"


def _why(source: Source, recipe: TrainingRecipe) -> str:
    if not isinstance(source, PreparedSource):
        return "there are no data"
    return (
        f"{recipe.data.path} has no held-out text (multimdm prepare --valid-fraction 0.02 keeps some, --data.valid "
        "names other data)"
    )


def _count(number: int) -> str:
    """Three digits of what is large."""
    for size, word in ((10**9, "billion"), (10**6, "million")):
        if number >= size:
            return f"{number / size:.3g} {word}"
    return f"{number:,}"


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
        """The means of what the steps told."""
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
        asked = share_asked(job.model.process)
        calls = job.objective.teacher_calls if isinstance(job.objective, Distillation) else 0
        each = flops_per_token(engine.network, job.source.length, asked, calls)
        tokens = self._tokens / self._steps
        share = utilisation(each * tokens / engine.ranks, data + step, engine.device)
        return cost if share is None else {**cost, "utilisation": share}

    def _seconds_of(self, what: str) -> float:
        """Per step: of reading data, say, or of the step itself."""
        return (self._clocks[what] - self._began.get(what, 0.0)) / self._steps
