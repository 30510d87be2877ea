"""Recall of held-out text in one step, for the terminal, pages and Markdown."""

from collections.abc import Sequence

from multimdm.evaluation.plan import Evaluation
from multimdm.evaluation.recall import Recall
from multimdm.report.formats import UNREACHED, UNREACHED_NOTE, full_text
from multimdm.report.markdown import markdown_table

NOTE = (
    "Recall: -log of the probability that one step gives to held-out text, in nats per token; lower is better. It "
    "shows what a model has forgotten, which the perplexity of its samples rewards."
)


def recall_texts(evaluation: Evaluation) -> list[str]:
    """At temperature 1, and at that of the aligned samples of one step, each with all that it depends on."""
    return [
        f"{full_text(recall.nats)} nats per token at temperature {recall.temperature:.4g}{mark} ({_over(recall)})"
        for recall, mark in zip(evaluation.recalls, _marks(evaluation), strict=True)
    ]


def recall_table(evaluations: Sequence[Evaluation]) -> str:
    """Of the models that have any, as Markdown."""
    found = [evaluation for evaluation in evaluations if evaluation.recalls]
    if not found:
        return ""
    rows = [[e.label, *_cells(e)] for e in found]
    first = found[0].recalls
    header = ["model", "at temperature 1", "at that of the aligned samples at K = 1"][: 1 + len(first)]
    lines = ["### Recall in one step", "", f"{NOTE} {_over(first[0])}.", "", *markdown_table(header, rows)]
    if any(UNREACHED in mark for e in found for mark in _marks(e)):
        lines += ["", UNREACHED_NOTE]
    return "\n".join(lines) + "\n"


def _cells(evaluation: Evaluation) -> list[str]:
    at_one, *aligned = evaluation.recalls
    mark = _marks(evaluation)[-1]
    return [full_text(at_one.nats), *(f"{full_text(one.nats)}, τ = {one.temperature:.4g}{mark}" for one in aligned)]


def _marks(evaluation: Evaluation) -> list[str]:
    """Beside the second temperature, if it does not give the entropy that was asked for."""
    reached = all(one.reached for one in evaluation.aligned if one.measurement.steps == 1)
    return ["", "" if reached else UNREACHED][: len(evaluation.recalls)]


def _over(recall: Recall) -> str:
    each = " for each, proposed by the teacher" if recall.proposed else ""
    return f"{recall.sequences:,} texts, {recall.strings:,} noise strings{each}"
