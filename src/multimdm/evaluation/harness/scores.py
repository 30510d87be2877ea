"""Scores on tasks, with what they must not be read without: the number of items and an interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from multimdm.evaluation.bootstrap import Bootstrap, Estimate


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

    @classmethod
    def of(cls, flags: Sequence[bool], gen_length: int, calls: int) -> "Score":
        """From what became of each item."""
        share = Bootstrap(len(flags)).share(torch.tensor(flags, dtype=torch.bool))
        return cls(share, sum(flags), len(flags), gen_length, calls)


@dataclass(frozen=True)
class Scored:
    """A score and what it is of."""

    task: str
    """As tables call it."""
    model: str
    tps: int
    """Tokens per step."""
    score: Score
