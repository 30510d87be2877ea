"""The loop: every system is trained, validated, sampled and saved here."""

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml

from multimdm.data.directories import write_text
from multimdm.data.prepared import Example
from multimdm.evaluation.nelbo import Nelbo, NelboSums, validation_times
from multimdm.models import Backbone
from multimdm.objectives import Batch, Distillation, Objective, stratified_times
from multimdm.objectives.base import TIMES
from multimdm.objectives.time_density import draw_times
from multimdm.pipeline import Model
from multimdm.pipeline.settings import same_process
from multimdm.process import MultiMask, Streams, debug_checks
from multimdm.training.answering import answering
from multimdm.training.background import Background, works_beside
from multimdm.training.checkpoints import Checkpoint, Checkpoints
from multimdm.training.display import Display, Watcher
from multimdm.training.ema import Ema
from multimdm.training.engine import Engine, like
from multimdm.training.header import header
from multimdm.training.pairs import Pairs
from multimdm.training.parts import Parts
from multimdm.training.quantile_pairs import Quantiles, quantile_pairs
from multimdm.training.rates import learning_rate
from multimdm.training.reading_ahead import ReadingAhead
from multimdm.training.recipes import dump_recipe
from multimdm.training.records import Records, loss_key
from multimdm.training.resuming import Resume, check_same_run, find_checkpoint, starts_of
from multimdm.training.seeds import derive, stage_seed
from multimdm.training.settings import TrainingRecipe
from multimdm.training.signals import Signals
from multimdm.training.sources import Source
from multimdm.training.teacher import Teacher
from multimdm.training.utilisation import flops_per_token, utilisation
from multimdm.training.validation import describe_nelbo, validation_sums
from multimdm.training.window import Window


@dataclass
class Job:
    """A model to train and all that it takes."""

    name: str
    command: str
    """What it is called in the lineage of the model: pretrain, adapt, couple, distill."""
    model: Model
    objective: Objective | Distillation
    source: Source
    recipe: TrainingRecipe
    teacher: Backbone | None = None
    """Of a distillation: the first teacher."""
    quantiles: Quantiles | None = None
    """If the noise is to hold the numbers that draw the texts."""

    def __post_init__(self) -> None:
        self.model = answering(self.model, self.objective, self.source)

    @property
    def fingerprint(self) -> str:
        """Equal for equal texts, and noise that is tied to them in the same way."""
        teacher = "" if self.quantiles is None else f", teacher {self.quantiles.teacher.fingerprint}"
        return f"{self.source.fingerprint}{teacher}"


@dataclass(frozen=True)
class Outcome:
    """What a finished run leaves."""

    model: Path
    """The directory that `multimdm.load` reads."""
    nelbo: Nelbo | None
    """On held-out sequences; None if there are none."""
    seconds: dict[str, float]
    """Where the time of this process went: match, data, step, validate, sample, save, log."""


def train(job: Job, out: Path, resume: Resume = "auto", quiet: bool = False, watcher: Watcher | None = None) -> Outcome:
    """Train to the end, from the last checkpoint of an earlier attempt if there is one; a watcher sees how it goes.

    On one CPU process a resumed run continues bit for bit like one that was never stopped: whatever is random is a
    function of the seed and the step, and everything else is in the checkpoint. Asked to stop by SIGTERM, SIGUSR1 or
    SIGINT, it saves the step that it is at, and leaves by SystemExit or KeyboardInterrupt.
    """
    checkpoints = Checkpoints(out / "checkpoints", job.recipe.log.keep)
    engine = Engine(job.model.network, job.recipe.train)
    try:
        found = engine.agree(find_checkpoint(checkpoints, out, resume) if engine.is_main else None)
        with Signals() as signals, debug_checks() if job.recipe.train.anomaly_checks else nullcontext():
            return _Run(job, out, checkpoints, engine, found, quiet, watcher, signals).to_the_end()
    finally:
        engine.close()


class _Run:
    def __init__(
        self,
        job: Job,
        out: Path,
        checkpoints: Checkpoints,
        engine: Engine,
        found: Checkpoint | None,
        quiet: bool,
        watcher: Watcher | None,
        signals: Signals,
    ) -> None:
        self.signals = signals
        self.job, self.out, self.engine, self.checkpoints = job, out, engine, checkpoints
        self.train, self.log = job.recipe.train, job.recipe.log
        self.recipe = dump_recipe(job.recipe)
        self.seed = stage_seed(self.train.seed, job.model.lineage)
        self.parts = Parts(self.train.batch_size, self.train.micro_batch, engine.rank, engine.ranks)
        self.ema = Ema(engine.weights, self.train.ema) if self.train.ema else None
        self.teacher = Teacher(engine, job.teacher) if job.teacher is not None else None
        self.pairs = self._pairs()
        beside = works_beside(engine.device)
        self.writer = Background() if beside else None
        self.reader = ReadingAhead(job.source.train) if beside and self.pairs is None else None
        self.objective = self._objective()
        self.validated = self._validation_size()
        self.step, self.nelbo = 0, None
        if found is not None:
            self._restore(found)
        self.starts = found.starts if found is not None else starts_of(job.recipe) if engine.is_main else {}
        self.seconds: dict[str, float] = defaultdict(float)
        self.by_time = torch.zeros(2, TIMES, dtype=torch.float64)
        self.records: Records | None = None
        if engine.is_main:
            checkpoints.set_aside_after(self.step)
            self.records = Records(out, job.name, self.log, self.step, self.recipe)
            self._record("start", ranks=engine.ranks, device=str(engine.device), strategy=self.train.strategy)
            write_text(out / "recipe.yaml", yaml.safe_dump(self.recipe, sort_keys=False))
        quiet = quiet or not engine.is_main
        self.display = watcher or Display(job.name, self.step, self.train.steps, quiet)
        self.display.advance(self.step)
        for line in header(job.name, job.model, job.source, job.recipe, engine, self.validated):
            self.display.say(line)
        if found is not None:
            self.display.say(f"{job.name}: going on from {found.path}")

    def to_the_end(self) -> Outcome:
        """Steps, and between them what the recipe asks for."""
        try:
            window = Window(self.seconds)
            while self.step < self.train.steps:
                start = time.perf_counter()
                window.add(*self._one_step(), time.perf_counter() - start)
                self.step += 1
                self.display.advance(self.step)
                stopping = self.signals.stopping and self.step < self.train.steps
                if stopping:  # first of all: there may be little time
                    self._save()
                if self._due(self.log.every):
                    self._report(window)
                    window = Window(self.seconds)
                if self._due(self.log.validate_every) or self.step == self.train.steps:
                    self.nelbo = self._validate()
                if self._due(self.log.sample_every):
                    self._sample()
                if stopping:
                    raise self._stopped(f"step {self.step}")
                if self._due(self.log.checkpoint_every):
                    self._save()
            return self._finish()
        finally:
            if self.reader is not None:
                self.reader.close()
            if self.writer is not None:
                self.writer.close()
            self.display.close()
            if self.records is not None:
                self.records.close()

    def _due(self, every: int) -> bool:
        return every > 0 and (self.step % every == 0 or self.step == self.train.steps)

    # ------------------------------------------------------------------ a step

    def _one_step(self) -> tuple[dict[str, float], int]:
        """One update of the weights; the terms of its loss in nats per token, and how many tokens there were."""
        if self.pairs is not None and self.pairs.due(self.step * self.train.batch_size):
            with self._timed("match"), self._averaged():
                saved = self.pairs.refresh(self.step * self.train.batch_size)
            if saved is not None:
                raise self._stopped(saved)
        with self._timed("data"):
            batches = list(self._batches())
            tokens = sum(int(example.counted.sum()) for example, _ in batches)
            tokens = int(self.engine.sum(torch.tensor(tokens))) if self.engine.ranks > 1 else tokens
            if self.reader is not None:
                following = (self.step + 1) * self.train.batch_size
                self.reader.expect((following + part.start, len(part)) for part in self.parts)
        with self._timed("step"):
            sums: dict[str, torch.Tensor] = {}
            by_time = torch.zeros(2, TIMES, dtype=torch.float64, device=self.engine.home)
            for number, (_, batch) in enumerate(batches):
                torch.manual_seed(derive(self.seed, "dropout", self.step, number, self.engine.rank))
                with self.engine.accumulating(last=number == len(batches) - 1):
                    result = self.objective(self.engine, batch)
                    self.engine.backward(result.loss * (self.engine.ranks / tokens))
                for name, value in {"loss": result.loss.detach(), **result.terms}.items():
                    sums[name] = sums.get(name, 0.0) + value.double()
                if result.by_time is not None:
                    by_time += result.by_time
            totals = self.signals.sum(self.engine, torch.cat([torch.stack(list(sums.values())), by_time.flatten()]))
            terms = dict(zip(sums, (totals[: len(sums)] / tokens).tolist(), strict=True))
            self.by_time += totals[len(sums) :].view(2, TIMES)
            norm = self.engine.gradient_norm(self.train.clip)
            self._check_finite(terms, norm)
            rate = learning_rate(self.step, self.train)
            self.engine.update(rate)
            if self.ema is not None:
                self.ema.update(self.step)
            if self.teacher is not None and isinstance(self.objective, Distillation):
                self.teacher.follow(self.objective.next_teacher(self.step, self.train.steps))
        return {**terms, "gradient_norm": norm, "learning_rate": rate}, tokens

    def _objective(self) -> Objective:
        """With its teacher, if it has one."""
        objective = self.job.objective
        if not isinstance(objective, Distillation):
            return objective
        if self.teacher is None:
            raise ValueError(f"{self.job.name} is to be distilled, but the job has no teacher")
        return objective.taught_by(self.teacher)

    def _pairs(self) -> Pairs | None:
        """Of texts and noise, if they belong together."""
        job, process = self.job, self.job.model.process
        if job.quantiles is None:
            return None
        if not isinstance(process, MultiMask):
            raise ValueError(f"{job.name} is to tie texts to masks, but its process is {process!r}")
        # The display comes later than the pairs, and is asked only when they are made.
        say = lambda text: self.display.say(text)  # noqa: E731
        asked = lambda: self.signals.asked  # noqa: E731
        return quantile_pairs(job.quantiles, self.engine, process, job.source, self.seed, say, asked)

    def _batches(self) -> Iterator[tuple[Example, Batch]]:
        """This rank's parts of the step's global batch."""
        device, first_of_step = self.engine.home, self.step * self.train.batch_size
        generator = torch.Generator().manual_seed(derive(self.seed, "times", self.step))
        drawn = draw_times(self.train.times, stratified_times(self.train.batch_size, generator))
        for part in self.parts:
            example, noise = self._texts(first_of_step + part.start, len(part))
            yield (
                example,
                Batch(
                    *example.on(device),
                    times=drawn.times[part.start : part.stop],
                    generator=Streams.spawn(derive(self.seed, "noise"), len(part), first_of_step + part.start),
                    step=self.step,
                    steps=self.train.steps,
                    noise=noise,
                    weight=None if drawn.weight is None else drawn.weight[part.start : part.stop],
                    given=None if example.given is None else example.given.to(device),
                ),
            )

    def _texts(self, first: int, num: int) -> tuple[Example, torch.Tensor | None]:
        """Training texts, and their noise if it belongs to them."""
        if self.pairs is None:
            return (self.reader or self.job.source.train)(first, num), None
        example, noise = self.pairs.train(first, num)
        return example, noise.to(self.engine.home)

    def _check_finite(self, terms: dict[str, float], norm: float) -> None:
        if math.isfinite(terms["loss"]) and math.isfinite(norm):
            return
        first = self.step * self.train.batch_size
        last = self.engine.agree(self.checkpoints.latest() if self.engine.is_main else None)
        kept = f"the last good checkpoint is {last.path}" if last is not None else "no checkpoint was made before"
        numbers = ", ".join(f"{name} {value:g}" for name, value in {**terms, "gradient norm": norm}.items())
        raise ValueError(
            f"the loss is not a number in step {self.step + 1} (sequences {first} to "
            f"{first + self.train.batch_size - 1} of the run): {numbers}; nothing was updated; {kept}. "
            "A lower train.learning_rate or a smaller train.clip may help; train.anomaly_checks finds the place"
        )

    # --------------------------------------------------------- between steps

    def _report(self, window: "Window") -> None:
        with self._timed("log"):
            numbers = window.means()
            if isinstance(self.objective, Distillation):
                numbers |= self.objective.settings_at(self.step - 1, self.train.steps)
            self._record("train", **numbers, seconds=round(sum(self.seconds.values()), 3))
            self._record("cost", **self._cost(window))
            self._record_times()
            self.display.show(self.step, numbers)

    def _record_times(self) -> None:
        """The loss in nats per token by the times of the sequences, where there were any since the last report."""
        losses, tokens = self.by_time.tolist()
        self.by_time.zero_()
        found = {f"loss_{part / TIMES:g}": losses[part] / tokens[part] for part in range(TIMES) if tokens[part]}
        if found:
            self._record("times", **found)

    def _cost(self, window: "Window") -> dict[str, float]:
        """Seconds per step, for data and for the step itself; on a GPU its memory at most, and how well it is used."""
        data, step = window.seconds("data"), window.seconds("step")
        cost = {"data_seconds": data, "step_seconds": step}
        device = self.engine.device
        if device.type == "cuda":
            cost["peak_memory"] = float(torch.cuda.max_memory_allocated(device))
        asked = 0.5 if isinstance(self.job.model.process, MultiMask) else 1.0
        each = flops_per_token(self.engine.network, self.job.source.length, asked, self.teacher is not None)
        share = utilisation(each * window.tokens / self.engine.ranks, data + step, device)
        return cost if share is None else {**cost, "utilisation": share}

    def _validate(self, record: bool = True) -> Nelbo | None:
        """The NELBO of the averaged weights on held-out sequences, shared out among ranks."""
        source, size = self.job.source, self.validated
        if size == 0:
            return None
        times = validation_times(size, self.log.validation_draws, seed=derive(0, "validation times"))
        with self._timed("validate"), self._averaged():
            process, quantiles = self.job.model.process, self.job.quantiles
            sums = validation_sums(self.engine, process, source, self.parts.of(size), times, quantiles)
            result = NelboSums(self.engine.sum(sums.values)).estimate(process)
            result = replace(result, one_step=quantiles is not None, exact=process is None)
        if not record:
            return result
        self._record(
            "valid",
            **{loss_key(result): result.total},
            reconstruction=result.reconstruction,
            identification=result.identification,
            standard_error=result.standard_error,
            perplexity=result.perplexity,
            bound=result.bound,
            one_step=result.one_step,
            sequences=result.sequences,
            **({"entropy": source.entropy} if source.entropy is not None else {}),
        )
        self.display.say(f"{self.job.name}  {self.step:,}  {describe_nelbo(result, source.entropy)}")
        return result

    def _validation_size(self) -> int:
        """How many held-out sequences are used; 0 if there are none."""
        there = self.job.source.valid_size
        size = self.log.validation_sequences if there is None else min(self.log.validation_sequences, there)
        if 0 < size < self.engine.ranks:
            raise ValueError(f"there must be a validation sequence for each of {self.engine.ranks} ranks; got {size}")
        return size

    def _sample(self) -> None:
        """A few texts of the averaged weights."""
        with self._timed("sample"), self._averaged():
            model = replace(self.job.model, network=self.engine.network)
            samples = model.sample(
                num=self.log.samples,
                length=self.job.source.length,
                steps=self.log.sample_steps,
                seed=derive(self.train.seed, "samples"),
            )
        texts = samples.texts
        self._record("sample", texts=texts, network_calls=samples.nfe)
        self.display.say(f"{self.job.name}  {self.step:,}  {texts[0]}")

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        with self.engine.evaluating(), self.ema.applied() if self.ema is not None else nullcontext():
            yield

    # ------------------------------------------------------------ checkpoints

    def _save(self) -> None:
        with self._timed("save"):
            together = self.engine.together
            if self.engine.is_main or together is not None:  # shards are gathered and written by all ranks
                tensors, model = self.engine.state(), self._current_model()
                if self.teacher is not None:
                    tensors |= self.teacher.state()
                if model is not None:  # the main rank's
                    if self.pairs is not None:
                        tensors |= self.pairs.state()
                    about = self.step, model, tensors, self.recipe, self.job.fingerprint, self.starts, together
                    write = partial(self.checkpoints.save, *about)
                else:
                    assert together is not None
                    write = partial(together.write, tensors)
                if self.writer is None:
                    write()
                else:  # what was taken from the GPU is a copy, which training does not touch
                    self.writer.run(write)

    def _stopped(self, saved: str) -> BaseException:
        """Leave once the main rank has saved: a launcher ends all ranks when the first one leaves."""
        if self.writer is not None:
            self.writer.wait()
        self.engine.agree(self.step)
        self.display.close()
        return self.signals.leaving(f"{self.job.name}: saved {saved}" if self.engine.is_main else None)

    def _current_model(self) -> Model | None:
        """With the averaged weights; the main rank's, which others only help to gather."""
        weights = self.ema.average if self.ema is not None else self.engine.weights
        step = {"command": self.job.command, "name": self.job.name, "steps": self.step, "recipe": self.recipe}
        network = self.engine.whole_network(weights)
        if network is None:
            return None
        return replace(self.job.model, network=network, lineage=(*self.job.model.lineage, step))

    def _restore(self, found: Checkpoint) -> None:
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
        self.step = found.step

    def _finish(self) -> Outcome:
        if self.nelbo is None:  # the run had been at its end before
            self.nelbo = self._validate(record=False)
        if self.writer is not None:
            self.writer.wait()
        target = self.out / "model"
        if self.engine.is_main or self.engine.sharded:
            model = self._current_model()
            if model is not None:
                model.save(target, replace=True)
                self.display.say(f"{self.job.name}: wrote {target}")
        return Outcome(target, self.nelbo, dict(self.seconds))

    # ---------------------------------------------------------------- helpers

    def _record(self, kind: str, **values: Any) -> None:
        if self.records is not None:
            self.records.write(kind, self.step, **values)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[what] += time.perf_counter() - start
