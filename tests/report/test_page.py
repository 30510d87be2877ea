"""Parts of a report as HTML: every kind has its macro, and text is never markup."""

from typing import get_args

import pytest

from multimdm.report.document import (
    Cell,
    Contents,
    Folded,
    Heading,
    Items,
    Paragraph,
    Part,
    Pictures,
    Quotations,
    SideBySide,
    States,
    Table,
    Words,
)
from multimdm.report.markdown import markdown_text
from multimdm.report.page import page

HOSTILE = '<i>"&\u202e\x1b'
INERT = "&lt;i&gt;&#34;&amp;\\u202e\\x1b"
PARTS: list[tuple[Part, int]] = [
    (Heading(HOSTILE, 3), 1),
    (Paragraph(HOSTILE), 1),
    (Paragraph(HOSTILE, "warning"), 1),
    (Table(HOSTILE, [HOSTILE], [[HOSTILE, Cell(HOSTILE, HOSTILE, strong=True)]]), 5),
    (Items([HOSTILE]), 1),
    (Pictures([("data:image/png;base64,AA==", HOSTILE)]), 1),
    (Quotations([HOSTILE]), 1),
    (Contents([HOSTILE]), 1),
    (SideBySide(HOSTILE, HOSTILE, [(HOSTILE, [Words(HOSTILE), Words(HOSTILE, True)])]), 5),
    (States([(0, HOSTILE)], [(HOSTILE, [(1, HOSTILE)])]), 3),
    (Folded(HOSTILE, [Quotations([HOSTILE])]), 2),
]


@pytest.mark.parametrize(("part", "times"), PARTS, ids=lambda value: type(value).__name__)
def test_text_is_never_markup(part, times):
    text = page("", "", [part])
    assert text.count(INERT) == times
    for forbidden in ("<i>", "\u202e", "\x1b"):
        assert forbidden not in text


def test_every_kind_of_part_is_tried():
    assert {type(part) for part, _ in PARTS} == set(get_args(Part))


def test_equations_are_not_broken():
    assert '<p class="soft">at K&nbsp;=&nbsp;4 &lt; 5</p>' in page("", "", [Paragraph("at K = 4 < 5")])


def test_markdown_says_what_it_cannot_show():
    assert markdown_text([]) == ""
    assert markdown_text([Heading("A", 1), Heading("B"), Items(["c", "d"])]) == "## A\n\n### B\n\n- c\n- d\n"
    with pytest.raises(TypeError, match="Markdown has no Pictures"):
        markdown_text([Pictures([])])
