"""Two models in plain words: the ratio of their GenPPL, with an interval, at each K."""

import math
from collections.abc import Sequence

from multimdm.evaluation.alignment import Aligned
from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.plan import Evaluation
from multimdm.report.document import Cell, Table
from multimdm.report.formats import INTERVAL, NOTHING, UNREACHED, by_steps, ratio_digits

NOTE = (
    "GenPPL of the first divided by that of the second, at the entropy of real stories: below 1 the first is better. "
    f"In brackets the {INTERVAL} over samples, from those of both. It says nothing of other training seeds: there is "
    "one."
)
_NOT_REACHED = f"{UNREACHED} entropy not reached"


def ratio_of(ours: Estimate, theirs: Estimate) -> Estimate:
    """ours / theirs, of independent samples: distances to the ends of both intervals add as squares, on a log scale."""
    value = ours.value / theirs.value
    ends = (ours.low, ours.high, theirs.low, theirs.high)
    if any(end is None or end <= 0 for end in ends):
        return Estimate(value)
    low, high, their_low, their_high = (math.log(end) for end in ends if end is not None)
    center, their_center = math.log(ours.value), math.log(theirs.value)
    below = math.hypot(center - low, their_high - their_center)
    above = math.hypot(high - center, their_center - their_low)
    return Estimate(value, value * math.exp(-below), value * math.exp(above))


def in_words(ratio: Estimate) -> str:
    """What the interval allows to say."""
    if ratio.low is None or ratio.high is None or ratio.low <= 1 <= ratio.high:
        return "not to be told apart"
    factor = ratio.value if ratio.value > 1 else 1 / ratio.value
    times = f"{ratio_digits(factor)} times" if factor >= 1.95 else f"{100 * abs(1 - ratio.value):.0f}%"
    return f"{times} {'lower' if ratio.value < 1 else 'higher'}"


def ratio_table(pairs: Sequence[tuple[Evaluation, Evaluation]], steps: Sequence[int]) -> Table:
    """A row for each pair: the first beside the second."""
    rows: list[list[str | Cell]] = []
    for ours, theirs in pairs:
        cells = [_cell(a, b) for a, b in zip(ours.aligned, theirs.aligned, strict=True)]
        rows.append([f"{ours.label} beside {theirs.label}", *cells])
    return Table("Ratios of GenPPL", by_steps(steps), rows, "ratios")


def _cell(a: Aligned, b: Aligned) -> Cell:
    ours, theirs = a.measurement.gen_ppl, b.measurement.gen_ppl
    if ours is None or theirs is None:
        return Cell(NOTHING)
    if not (a.reached and b.reached):
        return Cell(_NOT_REACHED)
    ratio = ratio_of(ours, theirs)
    between = "" if ratio.low is None or ratio.high is None else f" [{_short(ratio.low)}, {_short(ratio.high)}]"
    better = ratio.high is not None and ratio.high < 1
    return Cell(in_words(ratio), f"{_short(ratio.value)}{between}", strong=better)


def _short(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"
