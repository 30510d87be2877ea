"""One table of a comparison for who reads only one: GenPPL with the figures that it must not be read without."""

from collections.abc import Sequence

from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.report.distances import chance_text
from multimdm.report.formats import NOTHING, UNREACHED, by_steps, calls_text, perplexity_text, ratio_text, share_text
from multimdm.report.markdown import markdown_table


def short_text(evaluations: Sequence[Evaluation], steps: Sequence[int]) -> str:
    """As Markdown; empty where samples were not drawn for a comparison."""
    if not all(evaluation.aligned for evaluation in evaluations):
        return ""
    measurements = [one.measurement for evaluation in evaluations for one in evaluation.aligned]
    told = ["GenPPL", "entropy of all samples together in nats"]
    if chance := chance_text(measurements):
        told += ["total variation of tokens and of neighbouring pairs from the source", "valid stories"]
    real = evaluations[0].real
    if real is not None and real.gen_ppl is not None:
        known = f"{perplexity_text(real.gen_ppl.value)} and {ratio_text(real.pooled_entropy.value)}"
        chance = f"Real text has {known}. {chance}".rstrip()
    rows = [
        [e.label, *(_cell(one.measurement, one.reached, K) for K, one in zip(steps, e.aligned, strict=True))]
        for e in evaluations
    ]
    lines = ["### In short", "", f"In this order: {'; '.join(told)}. {chance}".rstrip(), ""]
    return "\n".join([*lines, *markdown_table(by_steps(steps), rows)]) + "\n"


def _cell(m: Measurement, reached: bool, K: int) -> str:
    parts = [NOTHING if m.gen_ppl is None else perplexity_text(m.gen_ppl.value)]
    parts.append(ratio_text(m.pooled_entropy.value))
    if m.token_distance is not None and m.pair_distance is not None:
        parts.append(f"{ratio_text(m.token_distance.value)}, {ratio_text(m.pair_distance.value)}")
    if m.valid_stories is not None:
        parts.append(share_text(m.valid_stories.value))
    return f"{'; '.join(parts)}{'' if reached else UNREACHED} {calls_text(m.nfe, K)}".rstrip()
