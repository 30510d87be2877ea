"""A strict reader of Prometheus's text format 0.0.4, written from its description, for tests of what a server shows."""

import re
from typing import NamedTuple

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL},?)*)\}})? (\S+)")
_PARTS = ("_bucket", "_sum", "_count")


class Family(NamedTuple):
    kind: str
    text: str
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]
    """Name of the series and its labels -> value."""


def read_exposition(text: str) -> dict[str, Family]:
    """Every line must be one of the format's, every series must follow its HELP and TYPE, and none comes twice."""
    assert text.endswith("\n"), "the last line must end"
    families: dict[str, Family] = {}
    help_of = ""
    family = ""
    for line in text.removesuffix("\n").split("\n"):
        if told := re.fullmatch(rf"# HELP ({_NAME}) (.*)", line):
            help_of, words = told[1], told[2]
            assert help_of not in families, f"{help_of} is told twice"
            assert re.fullmatch(r"(?:[^\\]|\\[\\n])*", words), words
            families[help_of] = Family("untyped", words, {})
        elif told := re.fullmatch(rf"# TYPE ({_NAME}) (counter|gauge|histogram)", line):
            family = told[1]
            assert family == help_of, f"TYPE {family} does not follow its HELP"
            families[family] = families[family]._replace(kind=told[2])
        else:
            sample = _SAMPLE.fullmatch(line)
            assert sample, f"not a line of the format: {line!r}"
            name, labels, value = sample[1], dict(re.findall(_LABEL, sample[2] or "")), sample[5]
            found = families[family]
            base = name
            if found.kind == "histogram":
                assert name.removeprefix(family) in _PARTS, name
                base = family
            assert base == family, f"{name} stands under {family}"
            key = name, frozenset((label, _plain(given)) for label, given in labels.items())
            assert key not in found.samples, f"{key} comes twice"
            found.samples[key] = float(value)
    return families


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", lambda sign: "\n" if sign[1] == "n" else sign[1], value)
