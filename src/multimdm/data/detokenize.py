"""Undo the tokenisation of corpora that come with spaces around every mark.

Diffusion language models are compared on the text as people write it, so the corpora are put back first: `do n't`
becomes `don't`, `" well , "` becomes `"well,"`. Each function is an ordered table of (pattern, replacement), after
the conventions of the works that report on these corpora; none of them is exact, since the corpora lost information.
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


# What belongs to the word before it: a mark between spaces, or at the end of the text.
_CLOSING_MARKS = (r" ([,;:?!])(?= |$)", r"\1")
_BRACKETS = [(r"\( ([^()]+) \)", r"(\1)"), (r"\[ ([^\[\]]+) \]", r"[\1]")]

_LM1B = _rules(
    [
        (r"(https?) : / / ", r"\1://"),
        (r" n't\b", "n't"),
        (r" '(?=\w)", "'"),  # they 've, John 's
        (r"(?<=\w) \.(?= |$)", "."),  # not after a mark: ellipses and initials keep their spaces
        _CLOSING_MARKS,
        (r" / ", "/"),
        (r'" ([^"]+) "', r'"\1"'),
        (r"' ([^']+) '", r"'\1'"),
        *_BRACKETS,
        (r"([$£]) ", r"\1"),
    ]
)

_WIKITEXT = _rules(
    [
        (r"s '", "s'"),  # the boys ' -> the boys'
        (r" @([-,.])@ ", r"\1"),  # 1 @,@ 000 -> 1,000
        (r" ([:;.!?,])(?=\s|$)", r"\1"),
        (r"\(\s*([^)]*?)\s*\)", r"(\1)"),
        (r"\[\s*([^\]]*?)\s*\]", r"[\1]"),
        (r"\{\s*([^}]*?)\s*\}", r"{\1}"),
        (r'"\s*([^"]*?)\s*"', r'"\1"'),
        (r"(?<!\S)' ([^']+) '(?!\S)", r"'\1'"),  # not the apostrophes of two words
        (r"(?<==) (?==)", ""),  # = = Title = = -> == Title ==
        (r" ° ", "°"),
        (r" ?\n ?", "\n"),
        (r" N (?=\S)", " 1 "),
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
