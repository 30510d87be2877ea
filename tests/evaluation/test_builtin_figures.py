"""The shipped weights give the figures that are on their cards."""

import pytest

from builtin_models import figures_of  # pyright: ignore[reportMissingImports]
from multimdm import load
from multimdm.builtin import builtin_names
from multimdm.evaluation.bootstrap import Estimate
from multimdm.pipeline.builtin_cards import Figure, builtin_card

_FEW = 32
"""Samples, so that it is quick: with another seed than the card's, whose samples are not among these."""


def _overlap(one: Figure, other: Figure) -> bool:
    return Estimate(one.value, one.low, one.high).overlaps(Estimate(other.value, other.low, other.high))


@pytest.mark.parametrize("name", builtin_names())
def test_figures_are_those_of_the_card(name):
    card = builtin_card(name)
    found = figures_of(load(name), _FEW, seed=7)
    assert [(one.steps, one.calls) for one in found] == [(one.steps, one.calls) for one in card.figures]
    for now, then in zip(found, card.figures, strict=True):
        for figure in ("gen_ppl", "entropy", "valid_sentences", "valid_stories"):
            assert _overlap(getattr(now, figure), getattr(then, figure)), (name, now.steps, figure)


def test_figures_of_another_model_are_told_apart():
    """The same comparison can fail: the masked model does not have the figures of the other one."""
    few_calls, masked = builtin_card("tales"), builtin_card("tales-mdlm")
    for one, other in zip(few_calls.figures, masked.figures, strict=True):
        assert not _overlap(one.gen_ppl, other.gen_ppl)
