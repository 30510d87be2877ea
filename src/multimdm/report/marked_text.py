"""Stories of Tales with the words marked that do not belong: the exact judge knows them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from multimdm.data.tales import Tales
from multimdm.data.tales_grammar import STOP
from multimdm.report.page import Markup, escape

_WORD = re.compile(r"\[\w+\]|[\w']+|\S")
_ROOM = 16
"""Tokens beyond a story's length: a text without an end still gets one."""


@dataclass(frozen=True)
class Word:
    """A word or a stop of a text."""

    text: str
    wrong: bool


def judged_words(texts: Sequence[str], tales: Tales | None = None) -> list[list[Word]]:
    """The words of each text, and which of them were rather replaced than written by the source."""
    wide = Tales((Tales() if tales is None else tales).length + _ROOM)
    wrong = wide.wrong(torch.tensor([wide.encode(text) for text in texts]))
    return [
        [Word(word, bool(mark)) for word, mark in zip(_WORD.findall(text), marks, strict=False)]
        for text, marks in zip(texts, wrong, strict=True)
    ]


def marked(words: Sequence[Word]) -> Markup:
    """As a line of text; neighbours that are wrong are marked together."""
    pieces: list[str] = []
    for number, word in enumerate(words):
        before = words[number - 1] if number else None
        space = " " if before is not None and word.text != STOP else ""
        close = "</mark>" if before is not None and before.wrong and not word.wrong else ""
        goes_on = before is not None and before.wrong and word.wrong
        opening = "<mark>" if word.wrong and not goes_on else ""
        pieces.append(f"{close}{space}{opening}{escape(word.text)}")
    end = "</mark>" if words and words[-1].wrong else ""
    return Markup("".join(pieces) + end)
