"""What is given, else what is advised, else what is usual; and settings that fit no order."""

import re
from dataclasses import replace
from typing import Any

import pytest

from multimdm.samplers import Sampling, SamplingAdvice, resolve
from multimdm.samplers.settings import ORDERS

ADVICE = SamplingAdvice(order="confidence", temperature=0, threshold=0.8, steps=6)
USUAL = Sampling(order="ancestral", temperature=1.0, grid="uniform", steps=4)


def test_without_advice_all_is_usual():
    assert resolve(Sampling()) == resolve(Sampling(), SamplingAdvice()) == USUAL


def test_advice_is_followed_and_what_is_given_wins():
    advised = resolve(Sampling(), ADVICE)
    assert advised == Sampling(order="confidence", temperature=0, threshold=0.8, steps=6)
    said: list[dict[str, Any]] = [{"temperature": 0.5}, {"steps": 2}, {"threshold": 0.3}, {"exclude_tokens": (1,)}]
    for given in said:
        assert resolve(Sampling(**given), ADVICE) == replace(advised, **given)
    cosine = SamplingAdvice(grid="cosine")
    assert resolve(Sampling(), cosine) == replace(USUAL, grid="cosine")
    assert resolve(Sampling(grid="uniform"), cosine) == USUAL


DROPPED = {
    "an order that knows no grid": (Sampling(grid="uniform"), replace(USUAL, temperature=0, steps=6)),
    "and no corrector": (Sampling(corrector=0.1), replace(USUAL, corrector=0.1, temperature=0, steps=6)),
    "the threshold of another order": (
        Sampling(order="left_to_right"),
        Sampling(order="left_to_right", temperature=0, steps=6),
    ),
    "a threshold where positions are random": (
        Sampling(remasking="random"),
        Sampling(order="confidence", remasking="random", temperature=0, steps=6),
    ),
    "steps beside a list of times": (
        Sampling(grid=(1, 0.5, 0)),
        replace(USUAL, grid=(1, 0.5, 0), steps=None, temperature=0),
    ),
    "temperature 0 beside top-p": (
        Sampling(top_p=0.9),
        Sampling(top_p=0.9, order="confidence", temperature=1.0, threshold=0.8, steps=6),
    ),
}


@pytest.mark.parametrize(("given", "expected"), DROPPED.values(), ids=DROPPED)
def test_advice_that_does_not_go_with_what_is_given_is_dropped(given, expected):
    assert resolve(given, ADVICE) == expected


@pytest.mark.parametrize("given", [Sampling(), *(given for given, _ in DROPPED.values())], ids=str)
def test_what_came_of_it_is_not_changed_again(given):
    once = resolve(given, ADVICE)
    assert resolve(once, ADVICE) == once


BAD = {
    "rewriting in blocks": (
        Sampling(order="rewrite", block_length=4),
        "block_length needs order='confidence'; got 4 without it",
    ),
    "rewriting the sure": (
        Sampling(order="rewrite", threshold=0.5),
        "threshold needs order='confidence' or 'left_to_right'; got 0.5 without it",
    ),
    "rewriting and correcting": (Sampling(order="rewrite", corrector=0.1), "corrector must be 0 with order='rewrite'"),
    "rewriting on a grid": (
        Sampling(order="rewrite", grid="cosine"),
        "grid must be left out with order='rewrite', which has times of its own; got 'cosine'",
    ),
    "rewriting, greedy in the end": (
        Sampling(order="rewrite", greedy_last=True),
        "greedy_last must be off with order='rewrite'; use temperature=0",
    ),
    "left to right in blocks": (Sampling(order="left_to_right", block_length=4), "block_length needs order='conf"),
    "left to right, guided": (Sampling(order="left_to_right", guidance=1.0), "guidance needs order='confidence'"),
    "left to right on a grid": (Sampling(order="left_to_right", grid=(1, 0)), "grid must be left out with order='left"),
    "left to right, any position": (
        Sampling(order="left_to_right", remasking="random"),
        "remasking needs order='confidence'",
    ),
    "two orders at once": (
        Sampling(corrector=0.1, block_length=4),
        "corrector and block_length are for different orders; leave some of them out",
    ),
}


@pytest.mark.parametrize(("settings", "message"), BAD.values(), ids=BAD)
def test_settings_that_go_with_no_order_are_refused(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        settings.check()


def test_an_order_is_not_guessed_from_a_setting():
    with pytest.raises(ValueError, match="block_length needs order='confidence'; got 4 without it"):
        resolve(Sampling(block_length=4))
    assert resolve(Sampling(block_length=4), ADVICE).order == "confidence"


@pytest.mark.parametrize(
    "advice",
    [{"threshold": 0.5}, {"order": "confidence", "grid": "cosine"}, {"temperature": -1}, {"steps": 0}],
    ids=str,
)
def test_advice_that_makes_no_sense_is_refused(advice):
    with pytest.raises(ValueError, match=next(reversed(advice))):
        SamplingAdvice(**advice)


def test_every_order_alone_is_fine():
    for order in ORDERS:
        Sampling(order=order).check()
