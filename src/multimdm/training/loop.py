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

from multimdm._files import write_text
from multimdm.evaluation.nelbo import Nelbo
from multimdm.models.layers import standing_weights
from multimdm.objectives import Distillation
from multimdm.objectives.base import TIMES
from multimdm.process import debug_checks
from multimdm.training.background import Background, works_beside
from multimdm.training.batches import Batches
from multimdm.training.checkpoints import Checkpoint, Checkpoints
from multimdm.training.display import Display, Watcher
from multimdm.training.engine import Engine, Signals
from multimdm.training.job import Job
from multimdm.training.records import Records
from multimdm.training.reporting import Window, header
from multimdm.training.resuming import Resume, find_checkpoint, starts_of
from multimdm.training.run_state import RunState
from multimdm.training.step_plan import Parts, derive, learning_rate
from multimdm.training.validation import describe_nelbo, nelbo_record, validate, validation_size


@dataclass(frozen=True)
class Outcome:
    """What a finished run leaves."""

    model: Path
    """The directory that `multimdm.load` reads."""
    nelbo: Nelbo | None
    """The NELBO on held-out sequences; None if there are none."""
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
        self.parts = Parts(self.train.batch_size, self.train.micro_batch, engine.rank, engine.ranks)
        # The display comes later than the state, and is told only when noise is made.
        self.state = RunState(job, engine, lambda text: self.display.say(text), lambda: signals.asked)
        self.seed, self.pairs = self.state.seed, self.state.pairs
        self.batches = Batches(job, engine, self.parts, self.seed, self.pairs)
        self.writer = Background() if works_beside(engine.device) else None
        self.objective = self.state.objective()
        self.validated = validation_size(job.source, self.log.validation_sequences, engine.ranks)
        self.step, self.nelbo = 0, None
        if found is not None:
            self.state.restore(found)
            self.step = found.step
        self.starts = found.starts if found is not None else starts_of(job.recipe) if engine.is_main else {}
        self.seconds: dict[str, float] = defaultdict(float)
        self.records: Records | None = None
        if engine.is_main:
            checkpoints.set_aside_after(self.step)
            self.records = Records(out, job.name, self.log, self.step, self.state.recipe)
            self._record("start", ranks=engine.ranks, device=str(engine.device), strategy=self.train.strategy)
            written = {"command": job.recipe.command, **self.state.recipe}
            write_text(out / "recipe.yaml", yaml.safe_dump(written, sort_keys=False))
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
            self.batches.close()
            if self.writer is not None:
                self.writer.close()
            self.display.close()
            if self.records is not None:
                self.records.close()

    def _due(self, every: int) -> bool:
        return every > 0 and (self.step % every == 0 or self.step == self.train.steps)

    # ------------------------------------------------------------------ a step

    def _one_step(self) -> tuple[dict[str, float], int, torch.Tensor]:
        """One update of the weights; the terms of its loss in nats per token, how many tokens, and both by time."""
        if self.pairs is not None and self.pairs.due(self.step * self.train.batch_size):
            with self._timed("match"), self.state.averaged():
                saved = self.pairs.refresh(self.step * self.train.batch_size)
            if saved is not None:
                raise self._stopped(saved)
        with self._timed("data"):
            batches = list(self.batches.of(self.step))
            tokens = sum(int(example.counted.sum()) for example, _ in batches)
            tokens = int(self.engine.sum(torch.tensor(tokens))) if self.engine.ranks > 1 else tokens
            self.batches.read_ahead(self.step + 1)
        with self._timed("step"):
            sums: dict[str, torch.Tensor] = {}
            by_time = torch.zeros(2, TIMES, dtype=torch.float64, device=self.engine.home)
            with standing_weights():
                for number, (_, batch) in enumerate(batches):
                    torch.manual_seed(derive(self.seed, "dropout", self.step, number, self.engine.rank))
                    with self.engine.accumulating(last=number == len(batches) - 1):
                        result = self.objective(self.engine, batch)
                        # Gradients are means over ranks, so a sum over ranks needs a factor `ranks`.
                        (result.loss * (self.engine.ranks / tokens)).backward()
                    for name, value in {"loss": result.loss.detach(), **result.terms}.items():
                        sums[name] = sums.get(name, 0.0) + value.double()
                    if result.by_time is not None:
                        by_time += result.by_time
            totals = self.signals.sum(self.engine, torch.cat([torch.stack(list(sums.values())), by_time.flatten()]))
            terms = dict(zip(sums, (totals[: len(sums)] / tokens).tolist(), strict=True))
            norm = self.engine.gradient_norm(self.train.clip)
            self._check_finite(terms, norm)
            rate = learning_rate(self.step, self.train)
            self.engine.update(rate)
            if self.state.ema is not None:
                self.state.ema.update(self.step)
            if self.state.teacher is not None and isinstance(self.objective, Distillation):
                self.state.teacher.follow(self.objective.next_teacher(self.step, self.train.steps))
        return {**terms, "gradient_norm": norm, "learning_rate": rate}, tokens, totals[len(sums) :].view(2, TIMES)

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

    def _report(self, window: Window) -> None:
        with self._timed("log"):
            numbers = window.means()
            if isinstance(self.objective, Distillation):
                numbers |= self.objective.settings_at(self.step - 1, self.train.steps)
            self._record("train", **numbers, seconds=round(sum(self.seconds.values()), 3))
            self._record("cost", **window.cost(self.job, self.engine))
            if losses := window.losses_by_time():
                self._record("times", **losses)
            self.display.show(self.step, numbers)

    def _validate(self, record: bool = True) -> Nelbo | None:
        """The NELBO of the averaged weights on held-out sequences, if there are any."""
        if self.validated == 0:
            return None
        with self._timed("validate"), self.state.averaged():
            result = validate(self.engine, self.job, self.parts, self.validated, self.log.validation_draws)
        if record:
            entropy = self.job.source.entropy
            self._record("valid", **nelbo_record(result, entropy))
            self.display.say(f"{self.job.name}  {self.step:,}  {describe_nelbo(result, entropy)}")
        return result

    def _sample(self) -> None:
        """A few texts of the averaged weights."""
        with self._timed("sample"), self.state.averaged():
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

    # ------------------------------------------------------------ checkpoints

    def _save(self) -> None:
        with self._timed("save"):
            together = self.engine.together
            if self.engine.is_main or together is not None:  # shards are gathered and written by all ranks
                tensors, model = self.state.tensors(), self.state.model(self.step)
                if model is not None:  # the main rank's
                    tensors |= self.state.tensors_of_main()
                    about = self.step, model, tensors, self.state.recipe, self.job.fingerprint, self.starts, together
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

    def _finish(self) -> Outcome:
        if self.nelbo is None:  # the run had been at its end before
            self.nelbo = self._validate(record=False)
        if self.writer is not None:
            self.writer.wait()
        target = self.out / "model"
        if self.engine.is_main or self.engine.sharded:
            model = self.state.model(self.step)
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
