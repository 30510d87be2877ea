"""Where a network loses, as a table: for the terminal and for pages."""

from collections.abc import Sequence

from multimdm.evaluation.plan import Evaluation
from multimdm.evaluation.shortfall import Shortfall
from multimdm.report.formats import INTERVAL, entropy_text, full_text

TITLE = "Where the network loses"
NOTE = (
    "KL(perfect || network) in nats per hidden token: how far predictions are from the exact ones, on noised texts and "
    f"on the states that the sampler visits, with its {INTERVAL}, and by time from noise (t = 1) to text."
)
HEADER = ["model", "states", "all times", "by time"]


def shortfall_rows(evaluations: Sequence[Evaluation]) -> list[list[str]]:
    """One for each kind of states."""
    return [[e.label, _states(one), full_text(one.nats), _by_time(one)] for e in evaluations for one in e.shortfalls]


def _states(one: Shortfall) -> str:
    if one.states == "data":
        return f"{one.sequences:,} noised texts"
    return f"{one.sequences:,} samples, K = {one.steps}, τ = {one.temperature:g}"


def _by_time(one: Shortfall) -> str:
    return ", ".join(f"{at.time:.2f}: {entropy_text(at.nats.value)}" for at in one.by_time)
