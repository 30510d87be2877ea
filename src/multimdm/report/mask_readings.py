"""What masks tell a network, in words: for the terminal, pages and Markdown."""

from collections.abc import Sequence

from multimdm.evaluation.mask_reading import MaskReading
from multimdm.evaluation.plan import Evaluation
from multimdm.report.markdown import markdown_table

TITLE = "What masks tell"
NOTE = (
    "The NELBO with random masks shown to the network, less that with the true ones, in nats per token ± standard "
    "error; times and hidden positions are the same. Who cannot tell masks apart has 0. Where own masks are read by "
    "Bayes' rule, it is what those of other positions tell."
)
_HEADER = ["model", "difference", "with random masks", "so that"]
_READ = "the masks are read"
_OTHERS_READ = "the masks of other positions are read"
_NOT_TESTED = "the network hardly reads its masks: what many masks can do was not tested"


def verdict(reading: MaskReading) -> str:
    """Whether the method was tested at all."""
    if not reading.tested:
        return _NOT_TESTED
    return _OTHERS_READ if reading.own_by_rule else _READ


def mask_reading_text(reading: MaskReading) -> str:
    """In a line."""
    return (
        f"what masks tell: {_difference(reading)} nats per token (NELBO {reading.random:.4f} with random masks shown): "
        f"{verdict(reading)}"
    )


def mask_reading_table(evaluations: Sequence[Evaluation]) -> tuple[list[str], list[list[str]]]:
    """Header and rows; no rows if no model has several masks."""
    found = [(e.label, e.mask_reading) for e in evaluations if e.mask_reading is not None]
    return _HEADER, [[label, _difference(one), f"{one.random:.4f}", verdict(one)] for label, one in found]


def mask_reading_markdown(evaluations: Sequence[Evaluation]) -> str:
    """As Markdown; empty if no model has several masks."""
    header, rows = mask_reading_table(evaluations)
    return "\n".join([f"### {TITLE}", "", NOTE, "", *markdown_table(header, rows)]) + "\n" if rows else ""


def _difference(reading: MaskReading) -> str:
    return f"{reading.difference:.4f} ± {reading.standard_error:.4f}"
