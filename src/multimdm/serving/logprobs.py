"""Log-probabilities of the tokens of an answer, in OpenAI's two shapes.

A diffusion model decides a token in the last call that it is asked for it: the call that reveals it, or of models
without masks the last one. What is told is log p(token | state before that call), at temperature 1, whatever the
temperature of the drawing, and the most probable tokens there.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from multimdm.serving.catalog import ServedModel
from multimdm.serving.plans import Plan, Slot
from multimdm.serving.texts import HALF_A_CHARACTER, text_after
from multimdm.serving.tickets import Stepped

_LEAST = -9999.0
"""OpenAI's number for what is too improbable to tell; JSON has no infinity."""
_CONTEXT = 8
"""Tokens before an alternative that tell how it is spelt: whether with a space, or a capital letter."""


class Reading(NamedTuple):
    """What the call that decided a token said at its position."""

    logprob: float
    best: list[tuple[int, float]]
    """The most probable tokens there, with their log-probabilities."""


class Entry(NamedTuple):
    """A token of an answer."""

    text: str
    """What it adds to the text; nothing if it is no whole character yet, or an end mark."""
    offset: int
    """Where it begins in the text of the answer."""
    logprob: float
    best: list[tuple[str, float]]


class Readings:
    """Log-probabilities in all sequences of a request, as its steps come in."""

    def __init__(self, plan: Plan, alternatives: int) -> None:
        self._plan, self._alternatives = plan, alternatives
        self._at: list[dict[int, Reading]] = [{} for _ in plan.slots]

    def add(self, step: Stepped) -> None:
        """A later call has the last word on a position."""
        assert step.top is not None
        places = step.top.positions.nonzero()[:, 0].tolist()
        columns = (step.top.chosen.tolist(), step.top.ids.tolist(), step.top.probs.tolist())
        for place, logprob, ids, probs in zip(places, *columns, strict=True):
            best = [(token, math.log(prob) if prob > 0 else _LEAST) for token, prob in zip(ids, probs, strict=True)]
            self._at[step.index][place] = Reading(max(logprob, _LEAST), best[: self._alternatives])

    def entries(self, index: int, ids: Sequence[int], tokens: range) -> list[Entry]:
        """The entries of these tokens of the answer, in their order."""
        served, slot = self._plan.served, self._plan.slots[index]
        found, before = [], _settled(served, slot, ids, tokens.start)
        for number in tokens:
            after = _settled(served, slot, ids, number + 1)
            text = after[len(before) :] if after.startswith(before) else ""
            reading = self._at[index][slot.made.start + number]
            context = ids[: slot.made.start + number][-_CONTEXT:]
            best = [(text_after(served, context, [token]), logprob) for token, logprob in reading.best]
            found.append(Entry(text, len(before), reading.logprob, best))
            before = after
        return found

    def whole(self, index: int, ids: Sequence[int], length: int, first: int = 0) -> list[Entry]:
        """The entries of all tokens from `first` on that begin within the first `length` characters of the answer."""
        slot = self._plan.slots[index]
        every = self.entries(index, ids, range(first, slot.made.stop - slot.made.start))
        return [entry for entry in every if entry.offset < length]


def _settled(served: ServedModel, slot: Slot, ids: Sequence[int], tokens: int) -> str:
    """The text of so many tokens of the answer, without a character that is not whole yet."""
    made = ids[slot.made][:tokens]
    return text_after(served, ids[: slot.made.start], made).rstrip(HALF_A_CHARACTER)


def as_completion(entries: Sequence[Entry]) -> dict[str, Any]:
    """Log-probabilities as /v1/completions has them; offsets count from the beginning of the answer."""
    return {
        "tokens": [entry.text for entry in entries],
        "token_logprobs": [entry.logprob for entry in entries],
        # Of tokens that are spelt alike, the most probable one.
        "top_logprobs": [dict(reversed(entry.best)) for entry in entries],
        "text_offset": [entry.offset for entry in entries],
    }


def as_chat(entries: Sequence[Entry]) -> dict[str, Any]:
    """Log-probabilities as /v1/chat/completions has them."""
    content = [
        {**_with_bytes(entry.text, entry.logprob), "top_logprobs": [_with_bytes(*one) for one in entry.best]}
        for entry in entries
    ]
    return {"content": content, "refusal": None}


def _with_bytes(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8", "surrogatepass"))}
