"""One set of figures from several training seeds: means, with intervals over seeds."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from scipy.special import stdtrit

from multimdm._checks import require
from multimdm.evaluation.alignment import Aligned
from multimdm.evaluation.bootstrap import LEVEL, Bootstrap, Estimate, perplexity
from multimdm.evaluation.mask_reading import MaskReading
from multimdm.evaluation.mauve import Mauve
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.nelbo import Nelbo
from multimdm.evaluation.plan import Evaluation
from multimdm.evaluation.recall import Recall
from multimdm.evaluation.shortfall import AtTime, Shortfall


def over_seeds(evaluations: Sequence[Evaluation]) -> Evaluation:
    """The same model trained with several seeds, as one; a single seed keeps its intervals over samples."""
    first = evaluations[0]
    if len(evaluations) == 1:
        return first
    for name in ("judge", "real", "label"):
        values = {str(getattr(evaluation, name)) for evaluation in evaluations}
        require(len(values) == 1, f"evaluations of several seeds must have one {name}; got {', '.join(sorted(values))}")
    return replace(
        first,
        nelbo=_on_held_out_text(
            [e.nelbo for e in evaluations if e.nelbo is not None],
            lambda nelbo: nelbo.total,
            "reconstruction",
            "identification",
        ),
        recalls=tuple(map(_recall, zip(*(e.recalls for e in evaluations), strict=True))),
        measurements=tuple(map(_measurement, zip(*(e.measurements for e in evaluations), strict=True))),
        aligned=tuple(map(_aligned, zip(*(e.aligned for e in evaluations), strict=True))),
        mask_reading=_on_held_out_text(
            [e.mask_reading for e in evaluations if e.mask_reading is not None],
            lambda reading: reading.difference,
            "true",
            "random",
        ),
        mauves=tuple(map(_mauve, zip(*(e.mauves for e in evaluations), strict=True))),
        shortfalls=tuple(map(_shortfall, zip(*(e.shortfalls for e in evaluations), strict=True))),
        seeds=len(evaluations),
    )


def ratios_over_seeds(ours: Sequence[Evaluation], theirs: Sequence[Evaluation]) -> list[Estimate | None]:
    """GenPPL of aligned samples as a multiple of another model's, at each K: the geometric mean of ratios.

    Models of one seed have their beginning in common, and what it did to both cancels. None where something is missing.
    """
    found = []
    for one, other in zip(*(zip(*(e.aligned for e in seeds), strict=True) for seeds in (ours, theirs)), strict=True):
        pairs = [(a.measurement.gen_ppl, b.measurement.gen_ppl) for a, b in zip(one, other, strict=True)]
        logs = [math.log(a.value / b.value) for a, b in pairs if a is not None and b is not None]
        found.append(Estimate(*map(perplexity, mean_over_seeds(logs))) if len(logs) == len(pairs) else None)
    return found


def mean_over_seeds(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean with Student's interval, which assumes that seeds are independent and their figures normal."""
    n, mean = len(values), statistics.fmean(values)
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * statistics.stdev(values) / math.sqrt(n)
    return mean, mean - half, mean + half


def _mean(estimates: Sequence[Estimate]) -> Estimate:
    return Estimate(*mean_over_seeds([estimate.value for estimate in estimates]))


def _share(estimates: Sequence[Estimate]) -> Estimate:
    """Its interval ends at 0 and 1 at the latest."""
    return Estimate(*(min(1.0, max(0.0, x)) for x in mean_over_seeds([estimate.value for estimate in estimates])))


def _share_of_samples(estimates: Sequence[Estimate], num: int) -> Estimate:
    """Where no sample of any seed differs, Wilson's for all samples together: seeds that agree prove no certainty."""
    values = {estimate.value for estimate in estimates}
    if values == {0.0} or values == {1.0}:
        return Bootstrap(num).share(torch.full((num * len(estimates),), values == {1.0}))
    return _share(estimates)


def _perplexity(estimates: Sequence[Estimate]) -> Estimate:
    """The geometric mean: exp of the mean of nats per token."""
    return Estimate(*map(perplexity, mean_over_seeds([math.log(estimate.value) for estimate in estimates])))


def _if_all(mean: Callable[[Sequence[Estimate]], Estimate], estimates: Sequence[Estimate | None]) -> Estimate | None:
    """None if some seed has none."""
    there = [estimate for estimate in estimates if estimate is not None]
    return mean(there) if len(there) == len(estimates) else None


_MEANS = {
    **dict.fromkeys(("entropy", "pooled_entropy"), _mean),
    **dict.fromkeys(("valid_sentences", "token_distance", "pair_distance"), _share),
    **dict.fromkeys(("subject_distance", "subject_pair_distance"), _share),
    "gen_ppl": _perplexity,
}
"""How figures of samples are averaged; those of `_OF_SAMPLES` are shares of samples, and `distinct` is three shares."""
_OF_SAMPLES = ("duplicates", "valid_stories")


def _measurement(found: Sequence[Measurement]) -> Measurement:
    num = found[0].num
    means = _MEANS | dict.fromkeys(_OF_SAMPLES, lambda estimates: _share_of_samples(estimates, num))
    one, two, three = (_share([m.distinct[n] for m in found]) for n in range(3))
    return replace(
        found[0],
        temperature=statistics.fmean(m.temperature for m in found),
        distinct=(one, two, three),
        **{name: _if_all(mean, [getattr(m, name) for m in found]) for name, mean in means.items()},
    )


def _aligned(found: Sequence[Aligned]) -> Aligned:
    """Reached if every seed reached it."""
    first = found[0]
    measurement = _measurement([one.measurement for one in found])
    return replace(first, reached=all(one.reached for one in found), trials=(), measurement=measurement)


def _recall(found: Sequence[Recall]) -> Recall:
    """No text has less than 0 nats."""
    temperature = statistics.fmean(one.temperature for one in found)
    mean, low, high = mean_over_seeds([one.nats.value for one in found])
    return replace(found[0], temperature=temperature, nats=Estimate(mean, max(0.0, low), high))


def _mauve(found: Sequence[Mauve]) -> Mauve:
    """What real text has is a mean as well: each seed has other halves of it."""
    return replace(
        found[0],
        temperature=statistics.fmean(one.temperature for one in found),
        value=_share([one.value for one in found]),
        real=statistics.fmean(one.real for one in found),
    )


Held = TypeVar("Held", Nelbo, MaskReading)


def _on_held_out_text(found: Sequence[Held], total: Callable[[Held], float], *terms: str) -> Held | None:
    """The means of its terms, with the standard error of the total over seeds; None if no seed has it."""
    if len(found) < 2:
        return found[0] if found else None
    means = {name: statistics.fmean(getattr(one, name) for one in found) for name in terms}
    return replace(found[0], **means, standard_error=statistics.stdev(map(total, found)) / math.sqrt(len(found)))


def _shortfall(found: Sequence[Shortfall]) -> Shortfall:
    """Time by time, as far as all seeds have it."""
    by_time = zip(*(one.by_time for one in found), strict=False)
    return replace(
        found[0],
        nats=_mean([one.nats for one in found]),
        by_time=tuple(
            AtTime(statistics.fmean(at.time for at in times), _mean([at.nats for at in times])) for times in by_time
        ),
    )
