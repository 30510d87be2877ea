"""The measurements of one trained model: every K, temperature and judge."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from multimdm.evaluation.judges import Judges
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
_TRIALS = 8
"""Temperatures that an alignment tries."""
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
    """Else samples are drawn once, at the temperature given or advised."""
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
        """In a line."""
        return f"measure {self.model}, seed {self.seed}"

    @property
    def cost(self) -> float:
        """Beside a training step."""
        times = len(self.scale.settings.temperatures) + _TRIALS if self.match_entropy else 1
        return self.samples * sum(self.steps) * times * _CALL

    @property
    def models(self) -> list[tuple[str, int]]:
        """All that must be trained before: the model, unless it is perfect, and judges of this scale."""
        judges = [judge for judge in self.scale.settings.judges if judge in self.scale.runs]
        own = [] if is_perfect(self.model) else [(self.model, self.seed)]
        return [*own, *((judge, _JUDGE_SEED) for judge in judges)]

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
        }

    def run(self, folders: Folders, watch: Callable[[float, str], None]) -> None:
        """Do what is missing; every finished measurement is kept."""
        opened = self._opened(folders, self.model, Judges())
        work = [task for subject, plan in opened for task in tasks(subject, plan)]
        run_tasks(work, watch)

    def collected(self, folders: Folders, label: str, judges: Judges) -> dict[str, Evaluation]:
        """By the name of the judge. Those that were opened for other models serve again: loading takes time."""
        opened = self._opened(folders, label, judges)
        names = self.scale.settings.judges
        return {name: collect(subject, plan) for name, (subject, plan) in zip(names, opened, strict=True)}

    def _opened(self, folders: Folders, label: str, judges: Judges) -> list[tuple[Subject, Plan]]:
        settings = self.scale.settings
        path = self.model if is_perfect(self.model) else str(folders.model(self.model, self.seed))
        drawing = Drawing(num=self.samples, seed=self.seed, law=SamplingRules(order=self.order))
        opened, found = Subject.open(path, label, drawing, Store(folders.points), "auto"), []
        opened = opened.with_teacher() if self.held_out else opened
        text = real_text(settings.data or folders.data, opened.model, opened.length)
        if self.temperature is not None:
            opened = replace(opened, given_temperature=self.temperature)
        own = () if self.is_limit else (opened.temperature,)
        plan = Plan(
            steps=self.steps,
            temperatures=settings.temperatures if self.match_entropy else own,
            align="corpus" if self.match_entropy else "own",
            text=text,
            nelbo_text=text if self.held_out else None,
            recall_strings=settings.recall_strings if self.held_out else 0,
            trajectories=self.trajectories,
        )
        for name in settings.judges:
            judge = str(folders.model(name, _JUDGE_SEED)) if name in self.scale.runs else name
            subject = replace(opened, judge=judges.make(judge, opened.model, opened.length))
            found.append((subject, plan))
        return found
