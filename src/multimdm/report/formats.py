"""Figures as text."""

from multimdm.evaluation.bootstrap import LEVEL, Estimate

INTERVAL = f"{LEVEL:.0%} interval"
NOTHING = "–"
UNREACHED = "†"
"""Marks what was measured at the closest attainable entropy."""
UNREACHED_NOTE = (
    f"{UNREACHED} The entropy asked for cannot be reached by any temperature; this is the closest attainable."
)


def perplexity_text(value: float | int) -> str:
    """Four digits, or whole numbers."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.4g}".rstrip(".")


def entropy_text(value: float | int) -> str:
    """Nats to three decimals."""
    return f"{value:.3f}"


def share_text(value: float | int) -> str:
    """Per cent to one decimal."""
    return f"{100 * value:.1f}%"


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
