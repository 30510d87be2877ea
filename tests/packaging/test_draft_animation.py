"""The animated picture of a draft: made of styles alone, and its frames are those that were drawn."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import torch

from draft_animation import Frame, animation, frames  # pyright: ignore[reportMissingImports]
from multimdm.data import Tales

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def test_frames_lead_from_noise_to_a_story():
    shown = frames("tales", tries=8)
    assert [frame.title for frame in shown] == ["Noise", "After one call", "After two calls"]
    noise, draft, story = shown
    assert set(noise.words) == {None}
    assert 0 < sum(word is not None for word in draft.words) < len(story.words)
    assert all(word is not None for word in story.words)
    assert all(story.settled)
    text = " ".join(word for word in story.words if word is not None)
    assert len(Tales().encode(text)) == 48


def test_the_picture_has_no_script_and_shows_every_word():
    words = ["A", "<cat>", "."]
    picture = animation([Frame("Noise", [None] * 3, [False] * 3), Frame("Done", words, [True] * 3)])
    root = ElementTree.fromstring(picture)
    kinds = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert kinds == {"svg", "style", "g", "text", "rect"}
    assert not re.search(r"\bon\w+=|href|url\(|@import", picture)
    first, last = root.findall(f"{SVG}g")
    assert [text.text for text in last.findall(f"{SVG}text")] == ["Done", *words]
    assert len(first.findall(f"{SVG}rect")) == 3
    for query in ("prefers-color-scheme: dark", "prefers-reduced-motion: reduce"):
        assert query in picture


def test_the_picture_of_the_readme_is_one():
    path = ROOT / "docs" / "images" / "draft.svg"
    assert "docs/images/draft.svg" in (ROOT / "README.md").read_text(encoding="utf-8")
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    frames = root.findall(f"{SVG}g")
    assert len(frames) == 3
    _, *words = (text.text or "" for text in frames[-1].findall(f"{SVG}text"))
    assert bool(Tales().valid(torch.tensor([Tales().encode(" ".join(words))]))), "its story has no mistake"
