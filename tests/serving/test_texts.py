"""Text that grows while its tokens come in any order."""

import pytest

from multimdm.serving.catalog import ServedModel
from multimdm.serving.plans import Slot
from multimdm.serving.texts import Prefix, answer
from support.tiny_models import word_model, word_tokenizer

WORDS = word_tokenizer(["a", "b", "c", "d", "e", "f"])
END = WORDS.vocab_size - 2
MASK = WORDS.vocab_size


@pytest.fixture(scope="module")
def served():
    return ServedModel.of("words", word_model(WORDS))


SLOT = Slot((0, None, None, None, None), slice(1, 5))


def test_only_what_has_no_gap_before_it_goes_out(served):
    prefix = Prefix(served, SLOT)
    assert prefix.grow([0, MASK, 2, 3, MASK]) == ""
    assert prefix.grow([0, 1, 2, 3, MASK]) == " b c d"
    assert prefix.grow([0, 1, 2, 3, MASK]) == ""
    assert prefix.rest(" b c d e") == " e"


def test_the_beginning_of_a_stop_text_waits(served):
    prefix = Prefix(served, SLOT, ["c e"])
    assert prefix.grow([0, 1, 2, MASK, MASK]) == " b "
    assert prefix.grow([0, 1, 2, 3, MASK]) == "c d"
    prefix = Prefix(served, SLOT, ["c e"])
    assert prefix.grow([0, 1, 2, 4, MASK]) == " b "
    assert prefix.rest(answer(served, SLOT, [0, 1, 2, 4, 5], ["c e"]).text) == ""


def test_the_end_mark_ends_the_text(served):
    end = END
    done = answer(served, SLOT, [0, 1, end, 2, 3])
    assert (done.text, done.finish_reason, done.tokens) == (" b", "stop", 2)
    assert Prefix(served, SLOT).grow([0, 1, end, MASK, 3]) == " b"
    whole = answer(served, SLOT, [0, 1, 2, 3, 4])
    assert (whole.text, whole.finish_reason, whole.tokens) == (" b c d e", "length", 4)


def test_in_front_of_a_suffix_nothing_ends(served):
    slot = Slot((0, None, None, 3, 4), slice(1, 3), open_end=False)
    done = answer(served, slot, [0, END, 2, 3, 4])
    assert (done.text, done.finish_reason, done.tokens) == (" c", "length", 2)
