"""What the playground shows before anything is asked."""

import re
from importlib.resources import files

import torch

from multimdm import load
from multimdm.builtin import USUAL
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


def test_what_a_visitor_reads_first_is_without_a_mistake():
    """The story that the page begins with, and those of the examples, in two calls by the seed that the page has."""
    page = files("multimdm.serving").joinpath("page", "index.html").read_text(encoding="utf-8")
    (seed,) = re.findall(r'id="seed"[^>]* value="(\d+)"', page)
    model, tales = load(USUAL), Tales()
    assert model.advice is not None
    assert model.advice.steps == 2
    texts = model.sample(num=1, seed=int(seed)).texts
    for prompt in start_page(USUAL, model)["examples"]:
        texts += model.complete(prompt, seed=int(seed)).texts
    assert len(texts) == 4
    for text in texts:
        assert bool(tales.valid(torch.tensor([tales.encode(text)]))), text


def test_other_models_have_none():
    plain = {"knows": None, "examples": [], "at_once": False}
    assert start_page("tales", word_model(word_tokenizer(["a", "cat"]))) == plain
