"""Figures as text."""

from collections.abc import Sequence

from multimdm.evaluation.bootstrap import LEVEL, Estimate
from multimdm.evaluation.plan import Evaluation

INTERVAL = f"{LEVEL:.0%} interval"
NOTHING = "–"
UNREACHED = "†"
"""Marks what was measured at the closest attainable entropy."""
UNREACHED_NOTE = (
    f"{UNREACHED} The entropy asked for cannot be reached by any temperature; this is the closest attainable."
)

BEST_NOTE = f"Bold: the lowest at K calls, with all whose {LEVEL:.0%} intervals overlap its own; none if all do."
UNRANKED_NOTE = "What took more network calls than K says how many; it is not ranked."
NO_BOUND = "no bound of the likelihood"
"""Instead of a perplexity, of CANDI's loss."""
ONE_STEP = "of text that is written in one step"
"""Beside a bound that is no NELBO: that of quantile noise."""
EXACT = "negative log-likelihood"
"""What the loss of an autoregressive model is: no bound of it."""
EXACT_JUDGE = "tales"
"""A judge that knows the law of the text: samples that score like real text are like it, or less varied, and distances
from the source say more than a ratio."""
NO_TEXT = (
    "No held-out text was given (--data), so the entropy of real text and the judge's own score on it are not known."
)


def common_entropy(evaluations: Sequence[Evaluation]) -> bool:
    """Whether samples were matched to one entropy, and not drawn as each model wants to be."""
    return any(one.target is not None for evaluation in evaluations for one in evaluation.aligned)


def by_steps(steps: Sequence[int]) -> list[str]:
    """The header of a table of models by K."""
    return ["model", *(f"K = {K}" for K in steps)]


def perplexity_text(value: float | int) -> str:
    """Four digits, or whole numbers."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.4g}".rstrip(".")


def entropy_text(value: float | int) -> str:
    """Nats, to three decimals."""
    return f"{value:.3f}"


def share_text(value: float | int) -> str:
    """Per cent to one decimal."""
    return f"{100 * value:.1f}%"


def ratio_text(value: float | int) -> str:
    """A number to two decimals, for narrow columns."""
    return f"{value:.2f}"


def ratio_digits(value: float | int) -> str:
    """Two digits, for what may be small or large."""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:#.2g}".rstrip(".")


def calls_text(calls: int, steps: int) -> str:
    """What to add to figures at K that took another number of network calls; else nothing."""
    return "" if calls == steps else f"({calls} call{'s' * (calls != 1)})"


def interval_text(estimate: Estimate | None, text=entropy_text) -> str:
    """[low, high]; empty if there is none."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    return f"[{text(estimate.low)}, {text(estimate.high)}]"


def value_text(estimate: Estimate | None, text=entropy_text) -> str:
    """The value alone."""
    return NOTHING if estimate is None else text(estimate.value)


def full_text(estimate: Estimate | None, text=entropy_text) -> str:
    """Value and interval."""
    return f"{value_text(estimate, text)} {interval_text(estimate, text)}".strip()
