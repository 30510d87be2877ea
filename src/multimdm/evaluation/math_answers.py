"""Whether an answer to a competition problem (MATH) is right, whatever form it is written in."""

import re
from itertools import accumulate

from math_verify import parse, verify

_SECONDS = 3
"""The time for reading one answer, and for comparing two."""
_LONGEST = 1000
"""Answers of more characters are compared as texts only: the time that it takes to read them grows fast."""
_DEEPEST = 30
"""Answers with more brackets inside each other are compared as texts only: deep in the parser an alarm may be lost."""
_DIGITS = 9
"""Digits behind the point by which numbers may differ from exact ones: 0.333 is not 1/3."""

_FINAL = re.compile(r"final answer is:?\s*(.+?)(?:\.?\s*I hope it is correct|\.?\s*$|\.?\n)", re.IGNORECASE | re.DOTALL)


def final_answer(solution: str) -> str | None:
    """What a solution gives as its answer: the last \\boxed, else what "the final answer is"; None if there is none."""
    boxed = _last_boxed(solution)
    if boxed is not None:
        return boxed
    found = _FINAL.findall(solution)
    return found[-1].strip() if found else None


def same_answer(given: str, wanted: str) -> bool:
    """Whether both are the same text or have the same value. What cannot be read in time is another answer.

    It works in the main thread only, since the time is kept by an alarm of the process.
    """
    given, wanted = given.strip().strip("$"), wanted.strip().strip("$")
    if given == wanted:
        return True
    if max(len(given), len(wanted)) > _LONGEST or max(_depth(given), _depth(wanted)) > _DEEPEST:
        return False
    one, other = (parse(rf"\boxed{{{answer}}}", parsing_timeout=_SECONDS) for answer in (given, wanted))
    return verify(other, one, float_rounding=_DIGITS, timeout_seconds=_SECONDS)


def _depth(text: str) -> int:
    """How many brackets are open at once, at most."""
    return max(accumulate(((sign in "([{") - (sign in ")]}") for sign in text), initial=0))


def _last_boxed(text: str) -> str | None:
    start = max(text.rfind(r"\boxed"), text.rfind(r"\fbox"))
    if start < 0:
        return None
    rest = text[text.index("b", start) :]
    rest = rest[len("boxed") :] if rest.startswith("boxed") else rest[len("box") :]
    rest = rest.lstrip()
    if not rest.startswith("{"):
        word = re.match(r"[^\s$]+", rest)
        return word[0] if word else None
    depth = 0
    for place, sign in enumerate(rest):
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return rest[1:place]
    return None  # the text was cut off inside the box
