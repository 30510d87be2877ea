"""MAUVE, as lines: for the terminal and for pages."""

from multimdm.evaluation.plan import Evaluation
from multimdm.report.formats import INTERVAL, entropy_text, full_text

TITLE = "MAUVE"
NOTE = (
    "How near samples are to real text in the features of a language model, from 0 to 1, with its "
    f"{INTERVAL} over random halves of both; beside it what as many other real texts have. Figures of other features "
    "or other numbers of texts cannot be compared."
)


def mauve_texts(evaluation: Evaluation) -> list[str]:
    """One for each K and temperature."""
    return [
        f"MAUVE by {one.reader}, K = {one.steps}, τ = {one.temperature:g}: {full_text(one.value)}; {one.num:,} real "
        f"texts have {entropy_text(one.real)}"
        for one in evaluation.mauves
    ]
