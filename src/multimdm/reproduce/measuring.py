"""The measurements of one trained model: every K, temperature and judge."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from multimdm.evaluation.alignment import USUAL_DRAWS
from multimdm.evaluation.judges import Judge, Judges
from multimdm.evaluation.judges.base import Reader
from multimdm.evaluation.perfect_models import is_perfect
from multimdm.evaluation.plan import Evaluation, Plan, collect, run_tasks, tasks
from multimdm.evaluation.real_text import real_text
from multimdm.evaluation.settings import Drawing
from multimdm.evaluation.store import Store
from multimdm.evaluation.subject import Subject
from multimdm.reproduce.models import Folders
from multimdm.reproduce.scale import Scale
from multimdm.samplers.settings import Order, SamplingRules

_CALL = 1 / 60
"""What a network call for one sample costs, beside a training step."""
_JUDGE_SEED = 0
"""A judge that is trained here is trained once."""


@dataclass(frozen=True)
class Measuring:
    """All measurements of one model and seed."""

    scale: Scale
    model: str
    """Its name at the scale, or that of a perfect one."""
    seed: int
    steps: tuple[int, ...]
    samples: int
    match_entropy: bool = True
    """Whether entropy is matched; else samples are drawn once, at the temperature given or advised."""
    order: Order | None = None
    temperature: float | None = None
    held_out: bool = True
    """Whether held-out text is measured too."""
    trajectories: bool = False
    is_limit: bool = False
    """Whether others are shown beside it: it is drawn once at each K, and nothing else is asked of it."""

    @property
    def name(self) -> str:
        """The name of the stage; the same model at other K, or drawn in another way, is another stage."""
        drawn = [] if self.match_entropy else ["drawn", *([self.order] if self.order else [])]
        drawn += [] if self.temperature is None else [f"tau{self.temperature:g}"]
        model = re.sub(r"[^\w.=-]", "-", self.model)  # it is a file's name too
        return "-".join(["measure", model, f"seed{self.seed}", *drawn, f"K{'-'.join(map(str, self.steps))}"])

    @property
    def says(self) -> str:
        """What the stage does, in a line."""
        return f"measure {self.model}, seed {self.seed}"

    @property
    def cost(self) -> float:
        """What it costs, in training steps."""
        times = len(self.scale.settings.temperatures) + USUAL_DRAWS if self.match_entropy else 1
        return self.samples * sum(self.steps) * times * _CALL

    @property
    def models(self) -> list[tuple[str, int]]:
        """All that must be trained before: the model, unless it is perfect, and judges and readers of this scale."""
        reader = [] if self._reader is None else [self._reader]
        wanted = dict.fromkeys([*self.scale.settings.judges, *reader])
        own = [] if is_perfect(self.model) else [(self.model, self.seed)]
        return [*own, *((judge, _JUDGE_SEED) for judge in wanted if judge in self.scale.runs)]

    @property
    def _reader(self) -> str | None:
        """The network of MAUVE, if it is wanted."""
        return None if self.is_limit else self.scale.settings.mauve

    @property
    def request(self) -> dict[str, Any]:
        """What was done, so that it is not done again."""
        settings = self.scale.settings
        return {
            "steps": list(self.steps),
            "temperatures": list(settings.temperatures),
            "samples": self.samples,
            "match_entropy": self.match_entropy,
            "order": self.order,
            "temperature": self.temperature,
            "judges": list(settings.judges),
            "recall_strings": settings.recall_strings if self.held_out else 0,
            **({"trajectories": True} if self.trajectories else {}),
            **({"mauve": self._reader} if self._reader is not None else {}),
        }

    def run(self, folders: Folders, watch: Callable[[float, str], None]) -> None:
        """Do what is missing; every finished measurement is kept."""
        opened = self._opened(folders, self.model, Judges())
        work = [task for subject, plan in opened for task in tasks(subject, plan)]
        total = sum(task.amount for task in work)
        run_tasks(work, lambda _, task, finished: watch(finished / total, task.name))

    def collected(self, folders: Folders, label: str, judges: Judges) -> dict[str, Evaluation]:
        """Name of a judge -> results. Judges that were opened for other models serve again: loading takes time."""
        opened = self._opened(folders, label, judges)
        names = self.scale.settings.judges
        return {name: collect(subject, plan) for name, (subject, plan) in zip(names, opened, strict=True)}

    def _opened(self, folders: Folders, label: str, judges: Judges) -> list[tuple[Subject, Plan]]:
        settings = self.scale.settings
        path = self.model if is_perfect(self.model) else str(folders.model(self.model, self.seed))
        rules = SamplingRules(order=self.order)
        drawing = Drawing(num=self.samples, seed=self.seed, batch_size=settings.batch_size, law=rules)
        opened = Subject.open(path, label, drawing, Store(folders.points), "auto")
        opened = opened.with_teacher() if self.held_out else opened
        text = real_text(settings.data or folders.data, opened.model, opened.length)
        if self.temperature is not None:
            opened = replace(opened, given_temperature=self.temperature)
        own = () if self.is_limit else (opened.temperature,)

        def judge_of(name: str) -> Judge:
            path = str(folders.model(name, _JUDGE_SEED)) if name in self.scale.runs else name
            return judges.make(path, opened.model, opened.length)

        reader = None if self._reader is None else judge_of(self._reader)
        assert reader is None or isinstance(reader, Reader)  # all but the exact one, which scales refuse
        plan = Plan(
            steps=self.steps,
            temperatures=settings.temperatures if self.match_entropy else own,
            align="corpus" if self.match_entropy else "own",
            text=text,
            nelbo_text=text if self.held_out else None,
            recall_strings=settings.recall_strings if self.held_out else 0,
            trajectories=self.trajectories,
            mauve=None if reader is None else (reader, text),
        )
        return [(replace(opened, judge=judge_of(name)), plan) for name in settings.judges]
