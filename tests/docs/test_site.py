"""The site has every page, its links are those of the repository, and its checker finds what is broken."""

import re
from pathlib import Path

import pytest

from docs_pages import MOVED, place_of, with_site_links  # pyright: ignore[reportMissingImports]
from site_links import broken_links  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"- (\S+\.md)$", text.partition("\nnav:")[2], flags=re.MULTILINE))
    own = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert listed == own | {place for place in MOVED.values() if place.endswith(".md")}
    assert all((ROOT / file).is_file() for file in MOVED)


def test_links_follow_files_that_moved():
    text = "[a](docs/README.md) [b](docs/method.md#x) ![c](docs/images/loss.png) [d](https://x.y) [e](#f) `[g](h)`"
    expected = "[a](guides.md) [b](method.md#x) ![c](images/loss.png) [d](https://x.y) [e](#f) `[g](h)`"
    assert with_site_links(text, "README.md") == expected
    assert with_site_links("[a](../benchmarks/README.md)", "docs/results.md") == "[a](benchmarks.md)"
    assert with_site_links("[a](../NOTATION.md)", "docs/reference/process.md") == "[a](../NOTATION.md)"
    assert with_site_links("```\n[a](b)\n```\n", "README.md") == "```\n[a](b)\n```\n"
    with pytest.raises(LookupError, match=r"pyproject\.toml is not on the site"):
        with_site_links("[a](pyproject.toml)", "README.md")


@pytest.mark.parametrize("file", [*MOVED, *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))])
def test_no_page_links_to_what_the_site_lacks(file):
    if file.endswith(".md"):
        with_site_links((ROOT / file).read_text(encoding="utf-8"), file)
    assert place_of(file)


def test_packages_of_the_reference_exist():
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
            assert (ROOT / "src" / Path(*name.split(".")) / "__init__.py").is_file(), name


def test_broken_links_are_found(tmp_path):
    good = '<a id="here"></a><a href="#here"></a><a href="b/c.html#there"></a><img src="x.png"><a href="https://x.y/z">'
    (tmp_path / "b").mkdir()
    (tmp_path / "x.png").touch()
    (tmp_path / "a.html").write_text(good)
    (tmp_path / "b" / "c.html").write_text('<h2 id="there"></h2><a href="../a.html"></a><a href="/a.html">')
    assert broken_links(tmp_path) == []
    (tmp_path / "d.html").write_text('<a href="b/c.html#no"></a><img src="no.png"><a href="#no"><a href="../out.html">')
    broken = ["b/c.html#no", "no.png", "#no", "../out.html"]
    assert broken_links(tmp_path) == [f"d.html: {link}" for link in broken]
