"""Whether an answer to a competition problem (MATH) is right, whatever form it is written in."""

import re

from multimdm.evaluation.latex_values import NoValueError, value_of

_POINTS = range(3)
_TOLERANCE = 1e-9

_FINAL = re.compile(r"final answer is:?\s*(.+?)(?:\.?\s*I hope it is correct|\.?\s*$|\.?\n)", re.IGNORECASE | re.DOTALL)
_DROPPED = re.compile(
    r"\\left|\\right|\\[!,;: ]|\\q?quad|\\displaystyle|\\,|~|\\\$|\$|\\%|%|\^\{?\\circ\}?|\\degree|\\ldotp"
)
_WORDS = re.compile(r"\\(?:text|mbox|mathrm|textbf|mathbf|textit)\s*\{([^{}]*)\}")
_THOUSANDS = re.compile(r"(?<=\d)(?:,|\{,\})(?=\d{3}(?!\d))")
_UNIT = re.compile(
    r"(?<=[\d}).])\s*(?:degrees?|cm|mm|km|m|inch(?:es)?|in|feet|foot|ft|miles?|mph|hours?|minutes?|seconds?|units?|"
    r"square\s*units?|dollars?|cents?|points?|people|students?|ways?)(?:\^\{?[23]\}?)?$"
)
_ASSIGNED = re.compile(r"^[a-zA-Z](?:\([a-zA-Z]\))?(?:=|\\in)(.+)$")
_OPENING, _CLOSING = "([{", ")]}"


def final_answer(solution: str) -> str | None:
    """What a solution gives as its answer: the last \\boxed, else what "the final answer is"; None if there is none."""
    boxed = _last_boxed(solution)
    if boxed is not None:
        return boxed
    found = _FINAL.findall(solution)
    return found[-1].strip() if found else None


def same_answer(given: str, wanted: str) -> bool:
    """Equal as text, once ways of writing are set aside; else equal in value, part by part."""
    one, other = normalise(given), normalise(wanted)
    return one == other or _same_value(one, other)


def normalise(answer: str) -> str:
    """Without layout, units, thousands' commas and the name of the unknown; fractions and roots with braces."""
    text = _WORDS.sub(r"\1", answer.strip().rstrip("."))
    text = text.replace(r"\dfrac", r"\frac").replace(r"\tfrac", r"\frac").replace(r"\{", "{").replace(r"\}", "}")
    text = text.replace(r"\leq", r"\le").replace(r"\geq", r"\ge").replace(r"\infinity", r"\infty")
    text = re.sub(r"^\((?=[A-Za-z]\)$)|(?<=^[(][A-Za-z])\)$", "", text)  # a choice, as in (B)
    text = _THOUSANDS.sub("", _DROPPED.sub("", text))
    text = _UNIT.sub("", text.strip())
    text = re.sub(r"\s+", "", text)
    assigned = _ASSIGNED.match(text)
    text = assigned[1] if assigned else text
    text = re.sub(r"\\(frac|sqrt)(\d)", r"\\\1{\2}", text)
    text = re.sub(r"(\\frac\{\d\})(\d)", r"\1{\2}", text)
    text = re.sub(r"(?<![\d}\])])(\d+)(\\frac\{\d+\}\{\d+\})", r"(\1+\2)", text)  # a mixed number
    text = re.sub(r"(?<!\d)\.(?=\d)", "0.", text)
    return re.sub(r"(?<=\d)\.0+(?!\d)", "", text)


def _same_value(one: str, other: str) -> bool:
    mine, theirs = _parts(one), _parts(other)
    if len(mine) > 1 or len(theirs) > 1:
        if len(mine) != len(theirs) or _brackets(one) != _brackets(other):
            return False
        # What is bare or in braces is a set: its order means nothing.
        if _brackets(one) in ("", "{}"):
            return _same_set(mine, theirs)
        return all(_same_value(a, b) for a, b in zip(mine, theirs, strict=True))
    if one == other:
        return True
    try:
        pairs = [(value_of(one, point), value_of(other, point)) for point in _POINTS]
    except NoValueError:
        return False
    return all(abs(a - b) <= _TOLERANCE * max(1.0, abs(a), abs(b)) for a, b in pairs)


def _same_set(mine: list[str], theirs: list[str]) -> bool:
    left = list(theirs)
    for part in mine:
        match = next((other for other in left if _same_value(part, other)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


def _parts(text: str) -> list[str]:
    """Of a tuple, an interval, a set or a bare list, at its outer commas; the text itself if it is none."""
    inner = text[1:-1] if _brackets(text) else text
    parts, depth = [""], 0
    for sign in inner:
        depth += (sign in _OPENING) - (sign in _CLOSING)
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts if len(parts) > 1 else [text]


def _brackets(text: str) -> str:
    """The outer brackets, of whatever kinds, if they belong together and hold a list; else nothing."""
    if len(text) < 2 or text[0] not in _OPENING or text[-1] not in _CLOSING:
        return ""
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign in _OPENING) - (sign in _CLOSING)
        if depth == 0 and place < len(text) - 1:
            return ""
    return text[0] + text[-1] if "," in text else ""


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
