"""Words that do not belong are marked, and nothing else."""

import re

from multimdm.report.document import SideBySide, Words
from multimdm.report.marked_text import joined, judged_words
from multimdm.report.page import page

STORY = (
    "Lily raced to the harbor with her neighbor. Beside the inn she noticed a red kite. A white cat jumped to Lily and "
    "admired it. The cat happily helped her carry the kite. She walked home gladly with the kite."
)


def marked(words: list[Words]) -> str:
    """As it stands on a page."""
    beside = SideBySide("title", "says", [("above", joined(words))])
    (text,) = re.findall(r"</b>(.*)</p>", page("", "", [beside]))
    return text


def test_a_story_has_no_marks_and_reads_as_it_was():
    (words,) = judged_words([STORY])
    assert marked(words) == STORY


def test_a_wrong_word_is_marked():
    (words,) = judged_words([STORY.replace("cat happily", "the happily")])
    assert re.findall("<mark>(.*?)</mark>", marked(words)) == ["the"]


def test_neighbours_are_marked_together_and_text_stays_text():
    words = [Words("A", False), Words("<b>", True), Words("odd", True), Words(".", False), Words("end", True)]
    assert marked(words) == "A <mark>&lt;b&gt; odd</mark>. <mark>end</mark>"


def test_a_text_without_an_end_is_judged_too():
    (words,) = judged_words([" ".join(["the"] * 48)])
    assert len(words) == 48
    assert sum(word.wrong for word in words) > 30
