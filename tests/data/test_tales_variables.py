"""What a story is about, read off its text; and which of its words are wrong."""

import pytest
import torch

from multimdm.data import Tales
from multimdm.data.tales_words import DEFAULT
from multimdm.process import Streams

TALES = Tales()
STORIES = TALES.sample(600, Streams.spawn(3, 600))


def value(name: str, text: str) -> str:
    (reading,) = TALES.variables.read(name, torch.tensor([TALES.encode(text)])).tolist()
    return (*DEFAULT.variables[name].phrases, "none")[reading]


LOST = (
    "One windy day Otto hurried to the library. He spotted a purple lantern near the desk. While Otto rested a noisy "
    "duck snatched the lantern. The duck flew away happily with the lantern. He and his uncle hurried home silently."
)


def test_a_story_is_read():
    assert [value(name, LOST) for name in DEFAULT.variables] == ["boy", "Otto", "library", "lantern", "duck", "lost"]


def test_a_spoilt_story_still_has_a_reading():
    assert value("event", LOST.replace("away", "the")) == "lost"
    assert value("hero", LOST.replace("Otto", "he")) == "none"


@pytest.mark.parametrize("names", [("hero",), ("event",), ("place", "hero"), ("gender", "hero")])
def test_the_law_is_exact(names):
    """Readings of stories of the source have it: chi-square at p = 1e-4, without the impossible ones."""
    law = TALES.variables.law(*names)
    assert float(law.sum()) == pytest.approx(1.0)
    place = torch.zeros(len(STORIES), dtype=torch.long)
    for name in names:
        place = place * TALES.variables.size(name) + TALES.variables.read(name, STORIES, 0.0)
    counts = torch.bincount(place, minlength=len(law)).double()
    assert len(counts) == len(law)
    assert not counts[law == 0].any()
    expected = law[law > 0] * len(STORIES)
    square = float(((counts[law > 0] - expected) ** 2 / expected).sum())
    free = int((law > 0).sum()) - 1
    assert square < free + 4 * (2 * free) ** 0.5 + 8


def test_both_ways_of_reading_agree_on_stories():
    """The gender is read as the most probable one; the name tells it too."""
    gender, hero = (TALES.variables.read(name, STORIES[:40]) for name in ("gender", "hero"))
    girls = len(DEFAULT.variables["hero"].phrases) // 2
    assert torch.equal(gender, (hero >= girls).long())


def test_nothing_is_wrong_in_stories():
    assert not TALES.wrong(STORIES[:40]).any()


def test_replaced_words_are_marked_and_no_others():
    """A word that cannot stand there is wrong; one that could have been drawn as well is not."""
    ids = torch.tensor([TALES.encode(LOST)])
    words = [TALES.vocabulary[i] for i in ids[0]]
    for place, word in ((1, "the"), (9, "an"), (20, "girl")):
        spoilt = ids.clone()
        spoilt[0, place] = TALES.vocabulary.index(word) if word in TALES.vocabulary else TALES.end_id
        assert TALES.wrong(spoilt)[0].nonzero()[:, 0].tolist() == [place]
    other = ids.clone()
    other[0, words.index("windy")] = TALES.vocabulary.index("sunny")
    assert not TALES.wrong(other).any()
