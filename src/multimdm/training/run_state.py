"""All that a run of training changes: the weights, and what is kept beside them. It is saved, and taken up again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from torch import Tensor

from multimdm.models.layers import standing_weights
from multimdm.objectives import Distillation, Objective
from multimdm.pipeline import Model
from multimdm.pipeline.settings import same_process
from multimdm.process import MultiMask
from multimdm.training.checkpoints import Checkpoint
from multimdm.training.engine import Engine, like
from multimdm.training.followers import Ema, Teacher
from multimdm.training.job import Job
from multimdm.training.quantile_pairs import Pairs, quantile_pairs
from multimdm.training.recipes import dump_recipe
from multimdm.training.resuming import check_same_run
from multimdm.training.step_plan import stage_seed


class RunState:
    """The network in its engine, its moving average, its teacher, and texts with their noise, as the job has them."""

    def __init__(self, job: Job, engine: Engine, say: Callable[[str], None], asked: Callable[[], bool]) -> None:
        """`say` is called with a line about work on the noise; `asked` tells whether the run is to stop."""
        self.job, self.engine = job, engine
        self.recipe = dump_recipe(job.recipe)
        self.seed = stage_seed(job.recipe.train.seed, job.model.lineage)
        self.ema = Ema(engine.weights, job.recipe.train.ema) if job.recipe.train.ema else None
        self.teacher = Teacher(engine, job.teacher) if job.teacher is not None else None
        self.pairs = self._pairs(say, asked)

    def _pairs(self, say: Callable[[str], None], asked: Callable[[], bool]) -> Pairs | None:
        """Texts and noise, if they belong together."""
        job, process = self.job, self.job.model.process
        if job.quantiles is None:
            return None
        if not isinstance(process, MultiMask):
            raise ValueError(f"{job.name} is to tie texts to masks, but its process is {process!r}")
        met = job.recipe.train.steps * job.recipe.train.batch_size
        return quantile_pairs(job.quantiles, self.engine, process, job.source, self.seed, say, asked, met)

    def objective(self) -> Objective:
        """That of the job, with its teacher, if it has one."""
        objective = self.job.objective
        if not isinstance(objective, Distillation):
            return objective
        if self.teacher is None:
            raise ValueError(f"{self.job.name} is to be distilled, but the job has no teacher")
        return objective.taught_by(self.teacher)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The network has the averaged weights inside the block, and neither dropout nor gradients."""
        applied = self.ema.applied() if self.ema is not None else nullcontext()
        with self.engine.evaluating(), applied, standing_weights():  # in this order: the average comes first
            yield

    def model(self, step: int) -> Model | None:
        """The main rank's: the model after so many steps, with the averaged weights.

        All ranks must ask if weights are sharded; those that only help to gather get None.
        """
        weights = self.ema.average if self.ema is not None else self.engine.weights
        stage = {"command": self.job.command, "name": self.job.name, "steps": step, "recipe": self.recipe}
        network = self.engine.whole_network(weights)
        if network is None:
            return None
        return replace(self.job.model, network=network, lineage=(*self.job.model.lineage, stage))

    def tensors(self) -> dict[str, Tensor]:
        """What it takes to go on beside the model. All ranks must ask if weights are sharded."""
        tensors = self.engine.state()
        if self.teacher is not None:
            tensors |= self.teacher.state()
        return tensors

    def tensors_of_main(self) -> dict[str, Tensor]:
        """What every rank has alike, so that the main one alone writes it."""
        return self.pairs.state() if self.pairs is not None else {}

    def restore(self, found: Checkpoint) -> None:
        """Take up what a checkpoint of the same run holds."""
        check_same_run(found, self.job.recipe, self.job.fingerprint)
        model = found.outline()
        process, ours = model.process, self.job.model.process
        if not same_process(process, ours):
            raise ValueError(
                f"{found.path} was made with another process or assignment of tokens to masks: {process!r} instead of "
                f"{ours!r}"
            )
        if model.network.config != self.engine.network.config:
            raise ValueError(
                f"{found.path} holds another network: {model.network.config} instead of {self.engine.network.config}"
            )
        tensors = found.tensors(self.engine.spread() | (self.teacher.spread() if self.teacher is not None else {}))
        self.engine.restore(tensors)
        if self.teacher is not None:
            self.teacher.restore(tensors)
        if self.pairs is not None:
            self.pairs.restore(tensors)
        if self.ema is not None:
            averages = dict(model.network.named_parameters())
            for name, average in zip(self.engine.names, self.ema.average, strict=True):
                average.copy_(like(averages[name].detach(), average))
