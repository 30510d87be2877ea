"""A judge that gives samples what it gives real text cannot tell them apart: its figures say nothing."""

from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.report.formats import full_text, perplexity_text

_EXACT_JUDGE = "tales"
"""It knows the law of the text: samples that score like real text are like it, or less varied."""


def weak_judge_text(evaluation: Evaluation) -> str | None:
    """What is to be said of the judge, if samples score at or below real text within the interval of real text."""
    real = evaluation.real
    if real is None or real.gen_ppl is None or evaluation.judge == _EXACT_JUDGE:
        return None
    most = real.gen_ppl.value if real.gen_ppl.high is None else real.gen_ppl.high
    measured = [*evaluation.measurements, *(one.measurement for one in evaluation.aligned)]
    passed = [m for m in measured if m.gen_ppl is not None and m.gen_ppl.value <= most]
    if not passed:
        return None
    where = "; ".join(dict.fromkeys(_at(m) for m in passed))
    text = (
        f"The judge {evaluation.judge} cannot tell samples from real text: it gives real text a perplexity of "
        f"{full_text(real.gen_ppl, perplexity_text)}, and samples no more ({where}). GenPPL says nothing here; take a "
        "stronger judge (--judge)"
    )
    least = real.entropy.value if real.entropy.low is None else real.entropy.low
    if any(m.entropy.value < least for m in passed):
        return f"{text}, and mind the entropy: some of these samples are less varied than real text."
    return f"{text}."


def _at(m: Measurement) -> str:
    assert m.gen_ppl is not None
    return f"{perplexity_text(m.gen_ppl.value)} at K = {m.steps}, tau {m.temperature:.4g}"
