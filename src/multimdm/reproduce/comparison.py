"""A comparison of models, from its specification to its results. Equal budgets are checked, not promised."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from multimdm.evaluation.judges import Judges
from multimdm.evaluation.language_models import check_installed
from multimdm.evaluation.perfect_models import is_perfect
from multimdm.evaluation.plan import Evaluation
from multimdm.report.reproduction_report import Reproduction, Trained
from multimdm.reproduce.experiment import ModelExperiment
from multimdm.reproduce.measuring import Measuring
from multimdm.reproduce.models import recipe_of, shaping_settings
from multimdm.reproduce.results import with_figures, write_results
from multimdm.reproduce.scale import NO_NETWORKS
from multimdm.reproduce.spec import Rule
from multimdm.reproduce.stages import Stage, measuring_stage, training_seconds
from multimdm.training.schema import DistillRecipe, TrainingRecipe

_RULES = {
    "stages": "{} saw equally many sequences in training, and the distilled ones in distillation.",
    "total": "{} saw equally many sequences in all, distillation included.",
}


@dataclass(frozen=True)
class Budget:
    """Sequences that went through training, over all runs that lead to a model. All have one length at a scale.

    Stages draw their own (`stage_seed`): on Tales no story is counted twice, unless a recipe reuses pairs that it made.
    """

    training: int
    distillation: int

    @property
    def total(self) -> int:
        """The sequences of both. What teachers read on top of it is not counted."""
        return self.training + self.distillation


def budget(recipes: Sequence[TrainingRecipe]) -> Budget:
    """The budget of a model that these recipes made, one after the other."""
    counts = {True: 0, False: 0}
    for recipe in recipes:
        counts[isinstance(recipe, DistillRecipe)] += recipe.train.steps * recipe.train.batch_size
    return Budget(counts[False], counts[True])


def check_equal(budgets: Mapping[str, Budget], rule: Rule) -> None:
    """Refuse a comparison of models that had different budgets, by the rule of its specification."""
    if rule == "total":
        _same("sequences in all", {label: one.total for label, one in budgets.items()})
        return
    _same("sequences of training", {label: one.training for label, one in budgets.items()})
    distilled = {label: one.distillation for label, one in budgets.items() if one.distillation}
    _same("sequences of distillation", distilled)


def _same(what: str, counts: Mapping[str, int]) -> None:
    if len(set(counts.values())) > 1:
        counted = ", ".join(f"{label} {count:,}" for label, count in counts.items())
        raise ValueError(f"the models of a comparison must have seen equally many {what}; they saw: {counted}")


@dataclass(frozen=True)
class Comparison(ModelExperiment):
    """A comparison of models by K."""

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers of steps K."""
        return self.spec.steps.get(self.scale.name, self.scale.settings.steps)

    def check(self) -> None:
        """Refuse what is wrong before any work: models that are not there, recipes, budgets."""
        trained = {label: run for label, run in self.models.items() if not is_perfect(run)}
        budgets = {label: budget(self.recipes(run)) for label, run in trained.items()}
        for rule, labels in self.spec.rules.items():
            check_equal({label: budgets[label] for label in labels if label in budgets}, rule)
        for tables in self.spec.published.get(self.scale.name, {}).values():
            for label, values in tables.items():
                if len(values) != len(self.steps):
                    raise ValueError(
                        f"{self.name}: published.{self.scale.name} has {len(values)} figures for {label}; there are "
                        f"{len(self.steps)} numbers of steps"
                    )

    def check_judges(self) -> None:
        """Refuse judges that cannot be opened here, before all that they are to judge is trained."""
        settings = self.scale.settings
        judges = [*settings.judges, *([settings.mauve] if settings.mauve is not None else [])]
        for name in judges:
            if name not in (*self.scale.runs, *NO_NETWORKS):
                check_installed(name, "judge")

    def stages(self) -> list[Stage]:
        """The stages, in an order in which they can be done."""
        found = self.preparing()
        for measuring in (one for label in self.models for one in self.measuring(label)):
            for model, seed in measuring.models:
                found |= self.training(model, seed)
            stage = measuring_stage(measuring, self.folders)
            found[stage.name] = stage
        return list(found.values())

    def write(self) -> Path:
        """Everything, for every judge; returns the directory."""
        collected, judges = self.collected(), self.scale.settings.judges
        results = [
            self._result(judge, {label: [one[judge] for one in seeds] for label, seeds in collected.items()})
            for judge in judges
        ]
        return write_results(self.folders.results(self.name), results, judges)

    def measuring(self, label: str) -> list[Measuring]:
        """What is measured of a model, for every seed."""
        spec, drawn, is_limit = self.spec, self.spec.drawn[label], label in self.spec.limits
        return [
            Measuring(
                self.scale,
                self.models[label],
                seed,
                self.steps,
                spec.samples or self.scale.settings.samples,
                spec.match_entropy and not is_limit,
                drawn.order,
                drawn.temperature,
                spec.held_out,
                spec.trajectories and not is_limit,
                is_limit,
            )
            for seed in self.seeds
        ]

    def collected(self) -> dict[str, list[dict[str, Evaluation]]]:
        """Label -> for every seed: judge -> what was measured."""
        judges = Judges()
        return {
            label: [one.collected(self.folders, label, judges) for one in self.measuring(label)]
            for label in self.models
        }

    def recipes(self, run: str) -> list[TrainingRecipe]:
        """The recipes of all runs that lead to a model, with the first seed."""
        return [recipe_of(one, self.scale, self.seeds[0], self.folders) for one in self.scale.chain(run)]

    def _result(self, judge: str, each: Mapping[str, Sequence[Evaluation]]) -> Reproduction:
        """`each`: label -> all seeds by themselves."""
        names = {one.model: label for label, one in self.spec.drawn.items()}
        first, wanted = next(iter(each)), self.spec.reference
        result = Reproduction(
            title=self.spec.title,
            shows=self.spec.shows,
            scale=self.scale.title,
            about=self.scale.settings.about,
            equal=self._rules(),
            seeds=len(self.seeds),
            judge=each[first][0].judge or judge,
            evaluations=(),
            reference=wanted if wanted is not None and wanted in each else first,
            ratios={},
            beside=self._beside(each),
            steps=self.steps,
            trained=[self._trained(label, run) for label, run in self.models.items()],
            published=self.spec.published.get(self.scale.name, {}),
            absent={names[run]: why for run, why in self.scale.settings.absent.items() if run in names},
        )
        return with_figures(result, each, self.seeds)

    def _beside(self, each: Mapping[str, Sequence[Evaluation]]) -> dict[str, str]:
        """Of the pairs that the specification names those that are there: a scale may leave models out."""
        return {one: other for one, other in self.spec.beside.items() if one in each and other in each}

    def _rules(self) -> str:
        """Which budgets are equal, in words."""
        who = {
            rule: "All models" if len(labels) == len(self.spec.models) else ", ".join(labels)
            for rule, labels in self.spec.rules.items()
        }
        return " ".join(_RULES[rule].format(models) for rule, models in who.items())

    def _trained(self, label: str, run: str) -> Trained:
        if is_perfect(run):
            return Trained(label, "none: exact predictions", 0, 0, 0.0)
        chain, recipes = self.scale.chain(run), self.recipes(run)
        spent = budget(recipes)
        seconds = sum(training_seconds(self.folders, one.name, seed) for one in chain for seed in self.seeds)
        stages = ", ".join(
            f"{one.command} {recipe.train.steps:,} × {recipe.train.batch_size}"
            for one, recipe in zip(chain, recipes, strict=True)
        )
        return Trained(label, stages, spent.training, spent.distillation, seconds / 60, _fingerprint(recipes))


def _fingerprint(recipes: Sequence[TrainingRecipe]) -> str:
    """A hash of all settings that shape a model, but for its seed."""
    settings = [{**shaping_settings(recipe), "train.seed": None} for recipe in recipes]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
