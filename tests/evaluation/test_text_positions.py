"""Which tokens of a sample are text."""

import torch

from multimdm.evaluation.sample_statistics import text_positions
from support.tiny_models import TALES, tales_model, word_model, word_tokenizer


def test_padding_is_none():
    tokenizer = word_tokenizer(["a", "b"])
    pad, end = tokenizer.pad_id, tokenizer.eos_id
    assert pad is not None
    assert end is not None
    ids = torch.tensor([[0, 1, end, pad, pad], [pad, 1, 0, end, end]])
    assert text_positions(word_model(tokenizer), ids).tolist() == [[True] * 3 + [False] * 2, [False] + [True] * 4]


def test_ends_of_text_that_serve_as_padding():
    """The first of the last run ends the text; others within it separate texts."""
    tokenizer = word_tokenizer(["a", "b"], end="[END]", pad="[END]")
    end = tokenizer.eos_id
    assert end == tokenizer.pad_id
    assert end is not None
    ids = torch.tensor([[0, end, end, 1, end, end], [0, 1, 0, 1, 0, 1], [end] * 6])
    wanted = [[True] * 5 + [False], [True] * 6, [True] + [False] * 5]
    assert text_positions(word_model(tokenizer), ids).tolist() == wanted


def test_in_tales_it_is_a_word():
    stories = TALES.sample(4, torch.Generator().manual_seed(0))
    assert bool((stories == 0).any())
    assert bool(text_positions(tales_model(), stories).all())
