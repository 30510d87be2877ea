"""The texts of a step, with their times and their noise: this rank's parts of the global batch."""

from collections.abc import Iterator

import torch

from multimdm.data.prepared import Example
from multimdm.objectives import Batch, stratified_times
from multimdm.objectives.times import draw_times
from multimdm.process import Streams
from multimdm.training.background import ReadingAhead, works_beside
from multimdm.training.engine import Engine
from multimdm.training.job import Job
from multimdm.training.quantile_pairs import Pairs
from multimdm.training.step_plan import Parts, derive


class Batches:
    """All that is random in them is a function of the seed and of the number of a sequence in the run."""

    def __init__(self, job: Job, engine: Engine, parts: Parts, seed: int, pairs: Pairs | None) -> None:
        self._train, self._source, self._engine = job.recipe.train, job.source, engine
        self._parts, self._seed, self._pairs = parts, seed, pairs
        self._reader = ReadingAhead(job.source.train) if pairs is None and works_beside(engine.device) else None

    def of(self, step: int) -> Iterator[tuple[Example, Batch]]:
        """This rank's parts of the global batch of a step."""
        device, first_of_step = self._engine.home, step * self._train.batch_size
        generator = torch.Generator().manual_seed(derive(self._seed, "times", step))
        drawn = draw_times(self._train.times, stratified_times(self._train.batch_size, generator))
        for part in self._parts:
            example, x_1 = self._texts(first_of_step + part.start, len(part))
            yield (
                example,
                Batch(
                    *example.on(device),
                    times=drawn.times[part.start : part.stop],
                    generator=Streams.spawn(derive(self._seed, "noise"), len(part), first_of_step + part.start),
                    step=step,
                    steps=self._train.steps,
                    x_1=x_1,
                    weight=None if drawn.weight is None else drawn.weight[part.start : part.stop],
                    given=None if example.given is None else example.given.to(device),
                ),
            )

    def read_ahead(self, step: int) -> None:
        """Begin to read the texts of a step that is to come, if that is done beside the computation."""
        if self._reader is not None:
            first_of_step = step * self._train.batch_size
            self._reader.expect((first_of_step + part.start, len(part)) for part in self._parts)

    def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.close()

    def _texts(self, first: int, num: int) -> tuple[Example, torch.Tensor | None]:
        """Training texts, and x_1 of each if their noise is tied to them."""
        if self._pairs is None:
            return (self._reader or self._source.train)(first, num), None
        example, x_1 = self._pairs.train(first, num)
        return example, x_1.to(self._engine.home)
