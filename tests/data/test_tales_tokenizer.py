"""The words of Tales as a tokenizer: the ids of Tales, and its readable text."""

import pytest
import torch

from multimdm.data import Tales, Tokenizer
from multimdm.data.tales import tales_tokenizer


@pytest.fixture(scope="module")
def tales() -> Tales:
    return Tales()


def test_texts_and_ids_are_those_of_tales(tales):
    tokenizer = tales_tokenizer(tales)
    assert tokenizer.vocab_size == tales.vocab_size
    assert (tokenizer.pad_id, tokenizer.eos_id) == (tales.pad_id, tales.end_id)
    for story in tales.sample(50, torch.Generator().manual_seed(0)):
        text = tales.decode(story)
        assert tokenizer.decode(story) == text
        words = tokenizer.encode(text)
        assert words == story[: len(words)].tolist()
        assert story[len(words)] == tales.end_id


def test_it_is_saved_and_loaded(tales, tmp_path):
    tokenizer = tales_tokenizer(tales)
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    story = tales.sample(1)[0]
    assert again.decode(story) == tales.decode(story)
    assert again.fingerprint == tokenizer.fingerprint


def test_names_keep_their_capitals_and_other_words_lose_them(tales):
    tokenizer = tales_tokenizer(tales)
    name = next(word for word in tales.vocabulary if word[0].isupper())
    other = next(word for word in tales.vocabulary if word[0].islower())
    both = tokenizer.encode(f"{other.capitalize()} {name}. {name} {other}.")
    assert [tales.vocabulary[i] for i in both] == [other, name, ".", name, other, "."]


def test_a_stranger_is_named(tales):
    with pytest.raises(ValueError, match="has no token for a word of the text: 'quasar'"):
        tales_tokenizer(tales).encode("The quasar.")
