"""Undo the tokenisation of corpora that come with spaces around every mark.

Diffusion language models are compared on text whose marks are put back first: `" well , "` becomes `"well, "`. Each
function is an ordered table of (pattern, replacement) with the effect of the tables in use in the field, blemishes
included (`do n't` stays, and so does the space before a stop after `5.5`): perplexities compare on equal text only.
"""

import re
from collections.abc import Callable, Iterable

Rules = list[tuple[re.Pattern[str], str]]


def _rules(pairs: Iterable[tuple[str, str]]) -> Rules:
    return [(re.compile(pattern), replacement) for pattern, replacement in pairs]


def _apply(rules: Rules, text: str) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def _joined(marks: str) -> list[tuple[str, str]]:
    """A mark between two spaces loses the one before it. Of two such marks in a row, only the first does."""
    return [(f" {re.escape(mark)} ", f"{mark} ") for mark in marks]


_LM1B = _rules(
    [
        (r"(https?) : / / ", r"\1://"),
        (r" '(\w+)", r"'\1"),  # they 've, John 's; n't keeps its space
        # A full stop is joined to a word of letters and digits alone, and only between spaces.
        (r" (\w+) \. ", r" \1. "),
        (r" (\w+) \.$", r" \1."),
        (r" \? ", "? "),
        (r" \?$", "?"),
        (r" ! ", "! "),
        (r" !$", "!"),
        *_joined(",:;"),
        (r" / ", "/"),
        (r'" ([^"]+) "', r'"\1"'),
        (r"' ([^']+) '", r"'\1'"),
        (r"\( ([^()]+) \)", r"(\1)"),
        (r"\[ ([^\[\]]+) \]", r"[\1]"),
        (r"([$£]) ", r"\1"),
    ]
)

_WIKITEXT = _rules(
    [
        (r"s '", "s'"),  # the boys ' -> the boys'
        (r" @([-,.])@ ", r"\1"),  # 1 @,@ 000 -> 1,000
        *_joined(":;.!?,"),
        (r"\(\s*([^)]*?)\s*\)", r"(\1)"),
        (r"\[\s*([^\]]*?)\s*\]", r"[\1]"),
        (r"\{\s*([^}]*?)\s*\}", r"{\1}"),
        (r'"\s*([^"]*?)\s*"', r'"\1"'),
        (r"'\s*([^']*?)\s*'", r"'\1'"),
        (r"(?<==) (?==)", ""),  # = = Title = = -> == Title ==
        (r" ° ", "°"),
        (r" ?\n ?", "\n"),
        (r" N ", " 1 "),
        (r" 's", "'s"),
    ]
)

_PTB = _rules(
    [
        (r" 's", "'s"),
        (r"s ' ", "s' "),
        (r" n't", "n't"),
        (r" \n ", "\n"),
        (r"\\/", "/"),
        (r"(?<= )N(?= )", "1"),  # the corpus writes N for every number
        (r"([$#]) 1", r"\g<1>1"),
        (r"<unk>", "?"),
    ]
)


def detokenize_lm1b(text: str) -> str:
    """The One Billion Word benchmark: contractions, marks, quotes, brackets, currency, links."""
    return _apply(_LM1B, text)


def detokenize_wikitext(text: str) -> str:
    """WikiText: its @-@ signs, marks, brackets, quotes and headings."""
    return _apply(_WIKITEXT, text)


def detokenize_ptb(text: str) -> str:
    r"""Penn Treebank: contractions, \/, N for numbers, <unk> (printed as ?)."""
    return _apply(_PTB, text)


DETOKENIZERS: dict[str, Callable[[str], str]] = {
    "lm1b": detokenize_lm1b,
    "wikitext": detokenize_wikitext,
    "ptb": detokenize_ptb,
}
"""Name (as in --detokenize) -> function from a document to a document."""
