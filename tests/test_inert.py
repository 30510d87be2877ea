"""Texts of strangers: shown, never obeyed."""

import json

from hypothesis import given
from hypothesis import strategies as st

from multimdm._inert import inert, inert_json, reason, shown

ANY = st.text(st.characters(exclude_categories=()))


@given(ANY)
def test_what_is_left_is_to_be_read(text):
    quiet = inert(text)
    assert not any((c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f" for c in quiet)
    assert not set(quiet) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
    quiet.encode("utf-8")
    assert inert(quiet) == quiet


def test_ordinary_texts_stay_as_they_are():
    for text in ("a\tb\nc", "naïve café", "日本語", "שלום", "👩\u200d👧", "a\u00a0b"):
        assert inert(text) == text
    assert inert("\x1b[31m\0") == "\\x1b[31m\\x00"


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_json_says_the_same(text):
    written = inert_json(json.dumps([text], ensure_ascii=False))
    assert json.loads(written) == [text]
    assert inert(written) == written


def test_values_and_reasons_are_short():
    assert shown("a" * 1000) == "'" + "a" * 79 + "..."
    assert shown([1] * 1000) == "a list of 1000"
    assert shown(3) == "3"
    assert reason(ValueError("first\nsecond")) == "first"
    assert reason(ValueError()) == "ValueError"
