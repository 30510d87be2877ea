"""Exact likelihoods under samplers, as lines: for the terminal and for pages."""

from multimdm.evaluation.bootstrap import perplexity
from multimdm.evaluation.plan import Evaluation
from multimdm.report.formats import INTERVAL, full_text, perplexity_text

TITLE = "Exact likelihood under samplers"
NOTE = (
    "-log p of held-out text in nats per token under a sampler whose order of revealing follows from the state, with "
    f"its {INTERVAL} over sequences: not a bound, and of K calls."
)
_ORDERS = {"confidence": "the most certain first", "left_to_right": "left to right"}


def likelihood_texts(evaluation: Evaluation) -> list[str]:
    """One for each K and temperature."""
    return [
        f"exact likelihood, {_ORDERS[one.order]}, K = {one.steps}, τ = {one.temperature:g}: {full_text(one.nats)} nats "
        f"per token, perplexity {perplexity_text(perplexity(one.nats.value))}"
        for one in evaluation.likelihoods
    ]
