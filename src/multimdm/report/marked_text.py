"""Stories of Tales with the words marked that do not belong: the exact judge knows them."""

import re
from collections.abc import Sequence

import torch

from multimdm.data.tales import Tales
from multimdm.data.tales_grammar import STOP
from multimdm.report.document import Words

_WORD = re.compile(r"\[\w+\]|[\w']+|\S")
_ROOM = 16
"""Tokens beyond a story's length: a text without an end still gets one."""


def judged_words(texts: Sequence[str]) -> list[list[Words]]:
    """The words of each text, and which of them were rather replaced than written by the source."""
    wide = Tales(Tales().length + _ROOM)
    wrong = wide.wrong(torch.tensor([wide.encode(text) for text in texts]))
    return [
        [Words(word, bool(mark)) for word, mark in zip(_WORD.findall(text), marks, strict=False)]
        for text, marks in zip(texts, wrong, strict=True)
    ]


def joined(words: Sequence[Words]) -> list[Words]:
    """A line of text in few pieces: neighbours that are wrong are marked together, and no space at their ends is."""
    pieces: list[Words] = []
    for word in words:
        space = " " if pieces and word.text != STOP else ""
        if pieces and pieces[-1].wrong == word.wrong:
            pieces[-1] = Words(f"{pieces[-1].text}{space}{word.text}", word.wrong)
        elif word.wrong:
            if pieces and space:
                pieces[-1] = Words(pieces[-1].text + space)
            pieces.append(word)
        else:
            pieces.append(Words(space + word.text))
    return pieces
