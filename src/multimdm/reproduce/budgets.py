"""Equal budgets are checked, not promised: how many sequences each model has seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from multimdm.reproduce.spec import Rule
from multimdm.training.schema import DistillRecipe, TrainingRecipe


@dataclass(frozen=True)
class Budget:
    """Sequences that went through training, over all runs that lead to a model. All have one length at a scale.

    Stages draw their own (`stage_seed`): on Tales no story is counted twice, unless a recipe reuses pairs that it made.
    """

    training: int
    distillation: int

    @property
    def total(self) -> int:
        """Of both. What teachers read on top of it is not counted."""
        return self.training + self.distillation


def budget(recipes: Sequence[TrainingRecipe]) -> Budget:
    """Of a model that these recipes made, one after the other."""
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
        told = ", ".join(f"{label} {count:,}" for label, count in counts.items())
        raise ValueError(f"the models of a comparison must have seen equally many {what}; they saw: {told}")
