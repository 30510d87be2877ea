"""Models on tasks at several numbers of tokens per step, through lm-evaluation-harness."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager

from multimdm._checks import require
from multimdm.evaluation.harness.benchmarks import BENCHMARKS, TASKS_DIRECTORY, answer_length, check_files
from multimdm.evaluation.harness.lm import MultiMDM
from multimdm.evaluation.harness.scores import Score, Scored
from multimdm.evaluation.harness.settings import TaskSettings
from multimdm.evaluation.progress import leave_if_asked, measuring_listener
from multimdm.evaluation.settings import label_of
from multimdm.evaluation.store import Store
from multimdm.models.arithmetic import Precision
from multimdm.pipeline import Model, load
from multimdm.pipeline.answers import Answering
from multimdm.pipeline.files import fingerprint_of_checkpoint
from multimdm.pipeline.hub import local_directory
from multimdm.pipeline.llada import is_adapter


@dataclass(frozen=True)
class HarnessPlan(TaskSettings):
    """What is run by the harness, and how."""

    answering: Answering = field(default_factory=Answering)
    """What all have in common. Its steps and tps stay out."""
    own_length: bool = True
    """Take the length of answers that each task asks for instead of `answering.gen_length`."""

    def check(self) -> None:
        """Everything that can be wrong without a model."""
        require(bool(self.tasks) and bool(self.tps), "tasks and tps must each have at least one")
        for name, values in (("tasks", self.tasks), ("tps", self.tps)):
            require(len(set(values)) == len(values), f"{name} must be different ones; got {list(values)}")
        for name in self.tasks:
            require(
                name in BENCHMARKS or self.include is not None,
                f"there is no task '{name}'; there are {', '.join(BENCHMARKS)}, and your own with --include",
            )
            if name in BENCHMARKS:
                require(
                    self.run_code or not BENCHMARKS[name].runs_code,
                    f"{name} is judged by running programs that the model wrote: allow it with --run-code",
                )
                if self.data is not None:
                    check_files(name, self.data)
        require(
            self.answering.steps is None and self.answering.tps is None,
            "steps are given by tps: leave them out of the settings of answers",
        )
        known = [answer_length(name) for name in self.tasks if name in BENCHMARKS]
        for tps in self.tps:
            for length in known if self.own_length else [self.answering.gen_length]:
                replace(self.answering, tps=tps, gen_length=length).check()


Report = Callable[[str], None]


def run_plan(
    plan: HarnessPlan,
    checkpoints: Sequence[str],
    store: Store,
    device: str = "auto",
    precision: Precision = "auto",
    base: str | None = None,
    report: Report = lambda text: None,
) -> list[Scored]:
    """All scores; what is in the store is not measured again, and a model is loaded only if something is missing."""
    plan.check()
    labels = [label_of(path) for path in checkpoints]
    require(len(set(labels)) == len(labels), f"models must have different names; got {', '.join(labels)}")
    found: list[Scored] = []
    total = len(checkpoints) * len(plan.tasks) * len(plan.tps)
    with measuring_listener() if store.lasting else nullcontext() as listener:
        for path, label in zip(checkpoints, labels, strict=True):
            fingerprint, loaded = fingerprint_of_checkpoint(local_directory(path)), _Late(path, device, precision, base)
            for name, tps in product(plan.tasks, plan.tps):
                report(f"{label}: {name} at {tps} tokens per step")
                score = store.remembered(
                    Score,
                    {"checkpoint": fingerprint, "precision": precision, "task": name, "tps": tps, **_essential(plan)},
                    lambda name=name, tps=tps, loaded=loaded: measure_task(plan, loaded.model, name, tps),
                )
                task = BENCHMARKS[name].label if name in BENCHMARKS else name
                found.append(Scored(task, label, tps, score))
                if listener is not None:
                    leave_if_asked(listener, len(found), total)
    return found


def measure_task(plan: HarnessPlan, model: Model, name: str, tps: int) -> Score:
    """One model on one task at one number of tokens per step."""
    settings = {**asdict(plan.answering), "tps": tps}
    if plan.own_length:
        settings.pop("gen_length")
    lm = MultiMDM(model, seed=plan.seed, batch_size=plan.batch_size, **settings)
    task = BENCHMARKS[name].task if name in BENCHMARKS else name
    places: list[str | Path] = [TASKS_DIRECTORY, *([] if plan.include is None else [plan.include])]
    where: dict[str, Any] = {"data": plan.data}
    manager = TaskManager(include_path=places, include_defaults=False, metadata=where)
    with _quietly():
        results: Any = simple_evaluate(
            lm,
            tasks=[task],
            task_manager=manager,
            limit=plan.limit,
            num_fewshot=plan.examples,
            apply_chat_template=plan.chat,
            bootstrap_iters=0,
            confirm_run_unsafe_code=plan.run_code,
        )
    if results is None:  # the harness tells the first rank of a machine alone; it is the main rank's score that counts
        return Score.of([False], lm.gen_length, lm.calls, lm.num_tokens)
    flags = [bool(sample[sample["metrics"][0]]) for sample in results["samples"][task]]
    return Score.of(flags, lm.gen_length, lm.calls, lm.num_tokens)


class _Late:
    """A model that is loaded when it is first asked for."""

    def __init__(self, path: str, device: str, precision: Precision, base: str | None) -> None:
        self._path, self._device, self._base = path, device, base
        self._precision: Precision = precision
        self._model: Model | None = None

    @property
    def model(self) -> Model:
        """`base` is for those that are adapters."""
        if self._model is None:
            base = self._base if is_adapter(local_directory(self._path)) else None
            self._model = load(self._path, self._device, self._precision, base)
        return self._model


def _essential(plan: HarnessPlan) -> dict[str, Any]:
    """What a score depends on besides the model, the task and tps."""
    settings = {name: value for name, value in asdict(plan).items() if name not in ("tasks", "tps", "batch_size")}
    if plan.include is not None:
        files = sorted(Path(plan.include).glob("*.y*ml"))
        settings["include"] = [re.sub(r"\s+", " ", file.read_text(encoding="utf-8")) for file in files]
    return settings


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the harness's advice about its own command line."""
    logger = logging.getLogger("lm_eval")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
