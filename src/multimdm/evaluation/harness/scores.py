"""Scores on tasks, with what they must not be read without: the number of items and an interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from multimdm.evaluation.bootstrap import Bootstrap, Estimate
from multimdm.evaluation.harness.parallelism import accuracy_under_parallelism


@dataclass(frozen=True)
class Score:
    """The share of items that a model answers rightly."""

    share: Estimate
    """With Wilson's interval: items are right or wrong, one independently of the other."""
    right: int
    items: int
    gen_length: int
    """New tokens per answer."""
    calls: int
    """Network calls per answer."""
    tokens: int
    """Tokens of all answers together, as they are judged: up to the end of text or a stop word."""

    @classmethod
    def of(cls, flags: Sequence[bool], gen_length: int, calls: int, tokens: int) -> "Score":
        """From what became of each item."""
        share = Bootstrap(len(flags)).share(torch.tensor(flags, dtype=torch.bool))
        return cls(share, sum(flags), len(flags), gen_length, calls, tokens)

    @property
    def tokens_per_forward(self) -> float:
        """Tokens of answers per network call: at most those per step, since what follows an answer is made as well."""
        return self.tokens / (self.items * self.calls)


@dataclass(frozen=True)
class Scored:
    """A score and what it is of."""

    task: str
    """As tables call it."""
    model: str
    tps: int
    """Tokens per step."""
    score: Score


def under_parallelism(scores: Sequence[Scored]) -> dict[tuple[str, str], float]:
    """Accuracy under parallelism by task and model, where there are at least two numbers of tokens per step.

    Accuracies are weighed against the best of the task among these scores.
    """
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    best: dict[str, float] = {}
    for one in scores:
        accuracy = 100 * one.score.share.value
        points.setdefault((one.task, one.model), []).append((one.score.tokens_per_forward, accuracy))
        best[one.task] = max(accuracy, best.get(one.task, 0.0))
    return {
        (task, model): accuracy_under_parallelism(found, best[task])
        for (task, model), found in points.items()
        if len(found) > 1
    }
