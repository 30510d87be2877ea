"""Which measurements make the curves of a picture, and what the curves are called."""

from collections.abc import Sequence

from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.report.formats import calls_text

Curves = dict[str, list[Measurement]]
"""Label of a curve -> its points."""


def fronts(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> dict[str, Curves]:
    """Title of a picture -> its curves: one picture per K for several models, one in all for a single one."""
    if len(evaluations) == 1:
        (e,) = evaluations
        return {e.label: {_label(f"K = {K}", at_step(e, steps, K), K): at_step(e, steps, K) for K in steps}}
    return {f"K = {K}": curves_at(evaluations, steps, K) for K in steps}


def curves_at(evaluations: Sequence[Evaluation], steps: Sequence[int], K: int) -> Curves:
    """A curve for each model; those that take another number of network calls say so."""
    return {_label(e.label, points, K): points for e in evaluations for points in [at_step(e, steps, K)]}


def at_step(evaluation: Evaluation, steps: Sequence[int], K: int) -> list[Measurement]:
    """The temperature sweep at one K of those that were asked for.

    Measurements come K by K, by place rather than by their own K: an autoregressive model has one for all.
    """
    per_step = len(evaluation.measurements) // len(steps)
    place = list(steps).index(K) * per_step
    return list(evaluation.measurements[place : place + per_step])


def _label(name: str, points: Sequence[Measurement], K: int) -> str:
    calls = max((m.nfe for m in points), default=K)
    return f"{name} {calls_text(calls, K)}".strip()
