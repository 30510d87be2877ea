"""What GenPPL must not be read without, as Markdown: how much samples differ, the NELBO, and some texts."""

from collections.abc import Iterator, Sequence

from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.report.formats import (
    EXACT,
    NO_BOUND,
    NOTHING,
    ONE_STEP,
    by_steps,
    common_entropy,
    entropy_text,
    ratio_text,
    share_text,
)
from multimdm.report.markdown import inline, markdown_table


def variety_text(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> str:
    """Of the entropy-aligned samples; empty if there are none."""
    if not all(evaluation.aligned for evaluation in evaluations):
        return ""
    real, stories = evaluations[0].real, evaluations[0].aligned[0].measurement.valid_sentences is not None
    beside = "" if real is None else f" (real text: {entropy_text(real.pooled_entropy.value)})"
    told = [f"pooled entropy in nats{beside}", "different pairs of tokens in a sample, as a share"]
    told += ["samples that repeat another", *(["valid sentences"] if stories else [])]
    which = "entropy-aligned samples" if common_entropy(evaluations) else "samples"
    lines = [f"### Variety of the {which}", "", f"In this order: {'; '.join(told)}.", ""]
    rows = [[e.label, *(_variety(one.measurement) for one in e.aligned)] for e in evaluations]
    lines += markdown_table(by_steps(steps), rows)
    return "\n".join(lines) + "\n"


def nelbo_text(evaluations: Sequence[Evaluation]) -> str:
    """In nats per token, of the models that have one."""
    found = [(e.label, e.nelbo) for e in evaluations if e.nelbo is not None]
    if not found:
        return ""
    rows = []
    for label, nelbo in found:
        note = f" ({ONE_STEP})" if nelbo.one_step else "" if nelbo.bound else f" ({NO_BOUND})"
        note = f" ({EXACT})" if nelbo.exact else note
        rows.append([label, f"{entropy_text(nelbo.total)} ± {entropy_text(nelbo.standard_error)}{note}"])
    lines = markdown_table(["model", "nats per token on held-out text ± standard error"], rows)
    title = "Negative log-likelihood" if all(nelbo.exact for _, nelbo in found) else "NELBO"
    return "\n".join([f"### {title}", "", *lines]) + "\n"


def samples_text(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> str:
    """The first sample of each model at the fewest, the middle and the most steps."""
    shown = {steps[0], steps[len(steps) // 2], steps[-1]}
    lines = list(_samples(evaluations, shown))
    title = "### Samples, at the matched entropy" if common_entropy(evaluations) else "### Samples"
    return "\n".join([title, "", *lines]) + "\n" if lines else ""


def _samples(evaluations: Sequence[Evaluation], shown: set[int]) -> Iterator[str]:
    for evaluation in evaluations:
        for one in evaluation.aligned:
            if one.measurement.steps in shown:
                yield f"- {evaluation.label}, K = {one.measurement.steps}: {inline(one.measurement.texts[0])}"


def _variety(m: Measurement) -> str:
    def share(estimate: Estimate | None) -> str:
        return NOTHING if estimate is None else share_text(estimate.value)

    parts = [f"{m.pooled_entropy.value:.2f}", ratio_text(m.distinct[1].value), share(m.duplicates)]
    return ", ".join([*parts, *([] if m.valid_sentences is None else [share(m.valid_sentences)])])
