"""The temperature at which samples have a given entropy: the entropy-aligned setting of App. (tau).

All temperatures are tried with the same random numbers, so that the entropy is (nearly) a continuous function of tau
and bisection has something to bisect. Where the target cannot be reached, the closest attainable entropy is taken and
marked, as in the first footnote of Tab. (text-gen-pretrain).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.measurement import Measurement

_UP, _DOWN = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0), (0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1, 0.05)
_FAR_UP, _FAR_DOWN = (1.5, 2.5), (0.7, 0.4, 0.15)
"""Where to look if the side that a rising curve suggests does not have the target."""
_TOLERANCE = 0.002
"""Nats that are close enough, whatever the interval."""
_SHARE = 0.05
"""Part of the interval's width that is close enough."""
USUAL_DRAWS = 8
"""How often samples are drawn, usually: at seven temperatures, and again at the one that is found, for the judge."""
_HALVINGS = 12
_ROUNDS = 3
"""How often to look closer around the best temperature, when the target is out of reach."""


@dataclass(frozen=True)
class Trial:
    """A temperature that was tried."""

    temperature: float | int
    entropy: Estimate

    def close(self, target: float | int) -> bool:
        """Whether the trial is near enough to the target to stop."""
        return abs(self.entropy.value - target) <= max(_TOLERANCE, _SHARE * self.entropy.width)

    def reaches(self, target: float | int) -> bool:
        """Whether the target is a value that the entropy may have."""
        return self.entropy.contains(target) or abs(self.entropy.value - target) <= _TOLERANCE


@dataclass(frozen=True)
class Aligned:
    """A measurement at the temperature that was found."""

    target: float | int | None
    """The entropy asked for; None of samples that are as the model is to be drawn, at whatever entropy."""
    reached: bool
    """Whether the target lies within the interval of the entropy; if not, this is the closest attainable."""
    trials: tuple[Trial, ...]
    """All that was tried, in the order of temperature."""
    measurement: Measurement


def align_entropy(
    entropy_at: Callable[[float], Estimate], measured_at: Callable[[float], Measurement], target: float | int
) -> Aligned:
    """Measure at the temperature where the sample entropy is the target, or as close to it as can be.

    A trial needs no judge, so it is asked about the temperature that is found alone.
    """
    best, trials = find_temperature(entropy_at, target)
    return Aligned(target, best.reaches(target), tuple(trials), measured_at(float(best.temperature)))


def find_temperature(entropy_at: Callable[[float], Estimate], target: float | int) -> tuple[Trial, list[Trial]]:
    """The trial whose entropy is closest to the target, and all trials."""
    if not math.isfinite(target) or target < 0:
        raise ValueError(f"the entropy to align to must be a number of nats, at least 0; got {target!r}")
    search = _Search(entropy_at, float(target))
    search.attempt(1.0)
    rising = search.best.entropy.value < target
    # A rising curve says where to go. If the target is not there, the curve may not be rising: look on the other side.
    for ladder in (_UP, _FAR_DOWN) if rising else (_DOWN, _FAR_UP):
        for tau in ladder:
            if not search.settled:
                search.attempt(tau)
    search.look_closer()
    search.bisect()
    return search.best, search.trials


class _Search:
    """What is known of the curve."""

    def __init__(self, entropy_at: Callable[[float], Estimate], target: float) -> None:
        self._entropy_at, self._target = entropy_at, target
        self._tried: dict[float, Trial] = {}

    @property
    def trials(self) -> list[Trial]:
        """All trials, by their temperature."""
        return [self._tried[tau] for tau in sorted(self._tried)]

    @property
    def best(self) -> Trial:
        """The closest; of equals, the one nearest to tau = 1."""
        return min(self.trials, key=lambda trial: (abs(self._gap(trial)), abs(math.log(trial.temperature))))

    @property
    def settled(self) -> bool:
        """Whether the search may end: a trial is close, or the target lies between two of them."""
        return self.best.close(self._target) or self._bracket() is not None

    def attempt(self, tau: float) -> bool:
        """Try a temperature; False if it was tried before."""
        if tau in self._tried:
            return False
        self._tried[tau] = Trial(tau, self._entropy_at(tau))
        return True

    def look_closer(self) -> None:
        """Around the best trial of a curve that has not been seen to cross the target: its top or bottom is there."""
        for _ in range(_ROUNDS):
            if self.settled:
                return
            taus, best = sorted(self._tried), self.best.temperature
            place = taus.index(float(best))
            for neighbour in taus[max(0, place - 1) : place] + taus[place + 1 : place + 2]:
                self.attempt(_between(float(best), neighbour))

    def bisect(self) -> None:
        """Halve the bracket until the entropy is close to the target."""
        for _ in range(_HALVINGS):
            bracket = self._bracket()
            if bracket is None or self.best.close(self._target) or not self.attempt(_between(*bracket)):
                return

    def _gap(self, trial: Trial) -> float:
        return trial.entropy.value - self._target

    def _bracket(self) -> tuple[float, float] | None:
        """Neighbouring temperatures with the target between their entropies; the pair nearest to tau = 1."""
        pairs = [(a, b) for a, b in pairwise(self.trials) if self._gap(a) * self._gap(b) < 0]
        if not pairs:
            return None
        a, b = min(pairs, key=lambda pair: abs(math.log(pair[0].temperature * pair[1].temperature)))
        return float(a.temperature), float(b.temperature)


def _between(a: float, b: float) -> float:
    """The geometric mean in four digits: what is printed is what was used."""
    return float(f"{math.sqrt(a * b):.4g}")
