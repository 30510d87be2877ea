"""Ids as text: what is returned, where it ends, and how much of it can be shown before it is finished."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from multimdm.serving.catalog import ServedModel
from multimdm.serving.plans import Slot

HALF_A_CHARACTER = "�"
"""What a decoder makes of bytes that are not yet a character."""


@dataclass(frozen=True)
class Answer:
    """The text of one finished sequence."""

    text: str
    finish_reason: Literal["stop", "length"]
    tokens: int
    """Made, the end mark included."""


def answer(served: ServedModel, slot: Slot, ids: Sequence[int], stop: Sequence[str] = ()) -> Answer:
    """The made part of a sequence: up to its end mark and to the first stop text."""
    made = list(ids[slot.made])
    end = _end(served, slot, made)
    text = text_after(served, ids[: slot.made.start], made[:end])
    cut = _first(text, stop)
    ended = end < len(made) or cut < len(text)
    return Answer(text[:cut], "stop" if ended else "length", min(end + 1, len(made)))


class Prefix:
    """The text of a sequence as far as it is settled, from its beginning.

    A diffusion model reveals tokens anywhere; a stream of text can only grow at its end. So what goes out is what has
    no gap before it. Where every token may still change, nothing goes out before the end.
    """

    def __init__(self, served: ServedModel, slot: Slot, stop: Sequence[str] = (), settles: bool = True) -> None:
        self._served, self._slot, self._stop = served, slot, stop
        self._settles = settles
        self._sent = ""
        self.covered = 0
        """Tokens whose text has gone out, all of it."""

    def grow(self, ids: Sequence[int]) -> str:
        """What can be added now, given the states after a step."""
        if not self._settles:
            return ""
        made = list(ids[self._slot.made])
        settled = next((i for i, state in enumerate(made) if state >= self._served.process.vocab_size), len(made))
        made = made[: min(settled, _end(self._served, self._slot, made[:settled]))]
        text = text_after(self._served, ids[: self._slot.made.start], made)
        cut = _first(text, self._stop)
        if cut == len(text):  # the beginning of a stop text may stand at the end
            cut -= max((_overlap(text, stop) for stop in self._stop), default=0)
        whole = text[:cut].rstrip(HALF_A_CHARACTER)
        if whole == text:
            self.covered = len(made)
        return self._send(whole)

    def rest(self, whole: str) -> str:
        """What is missing when the answer is known."""
        return self._send(whole)

    def _send(self, text: str) -> str:
        """The part that is new; nothing if the text no longer begins as it did."""
        if not text.startswith(self._sent):
            return ""
        new, self._sent = text[len(self._sent) :], text
        return new


def _end(served: ServedModel, slot: Slot, made: Sequence[int]) -> int:
    """The place of the first end mark, if the text may end."""
    if not slot.open_end:
        return len(made)
    return next((place for place, token in enumerate(made) if token in served.ends), len(made))


def text_after(served: ServedModel, before: Sequence[int], made: Sequence[int]) -> str:
    """The text that the made tokens add: decoded behind the prompt, since a first word may look different."""
    known = served.tokenizer.vocab_size
    head, tail = ([token for token in part if token < known] for part in (before, made))
    prompt, whole = served.tokenizer.decode(head), served.tokenizer.decode([*head, *tail])
    return whole[len(prompt) :] if whole.startswith(prompt) else served.tokenizer.decode(tail)


def _first(text: str, stop: Sequence[str]) -> int:
    """Where the earliest stop text begins."""
    return min((place for place in (text.find(s) for s in stop) if place >= 0), default=len(text))


def _overlap(text: str, stop: str) -> int:
    """The longest end of the text that could become the stop text."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
