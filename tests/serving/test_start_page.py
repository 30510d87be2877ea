"""What the playground shows before anything is asked."""

import torch

from multimdm.data import Tales
from multimdm.serving.cards import start_page
from support.tiny_models import TALES, tales_model, word_model, word_tokenizer


def test_a_model_of_tales_says_what_it_knows_and_what_to_ask():
    told = start_page("mine", tales_model())
    assert f"{TALES.vocab_size} words" in told["knows"]
    assert "38 names, 24 places, 32 things, 18 animals" in told["knows"]
    assert not told["at_once"]  # the network of a stranger may be slow
    assert start_page("tales", tales_model())["at_once"]


def test_examples_can_become_stories():
    """Every one is the beginning of some story: its most probable continuation by the exact source is valid so far."""
    tales = Tales()
    for prompt in start_page("tales", tales_model())["examples"]:
        given = [token for token in tales.encode(prompt) if token not in (tales.end_id, tales.pad_id)]
        evidence = torch.ones(1, tales.length, tales.vocab_size, dtype=torch.float64)
        evidence[0, : len(given)] = 0.0
        evidence[0, torch.arange(len(given)), given] = 1.0
        others = tales.leave_one_out(evidence)[0, torch.arange(len(given)), given]
        replaced = tales.EPSILON / tales.vocab_size
        assert float(others.exp().min()) > 10 * replaced, prompt


def test_other_models_have_none():
    plain = {"knows": None, "examples": [], "at_once": False}
    assert start_page("tales", word_model(word_tokenizer(["a", "cat"]))) == plain
