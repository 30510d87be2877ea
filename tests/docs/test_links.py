"""Links of the README and the guides lead somewhere; NOTATION and the page on architecture name what there is."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "multimdm"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOTATION = (ROOT / "docs" / "NOTATION.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROWS = [
    re.split(r"(?<!\\)\|", line.strip().strip("|"))
    for line in NOTATION.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| paper"))
]


LINKED = [
    *PAGES,
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    ROOT / "benchmarks" / "README.md",
    *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
]


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them: small letters, no punctuation, hyphens for blanks, equals numbered."""
    found: set[str] = set()
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.*?)\s*$", text, flags=re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", heading).lower()).replace(" ", "-")
        number, name = 0, slug
        while name in found:
            number, name = number + 1, f"{slug}-{number + 1}"
        found.add(name)
    return found


def test_anchors_are_those_of_github(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A `b`, c\n## One + two\n```\n# no heading\n```\n## One + two\n## [Link](x.md)\n")
    assert anchors(page) == {"a-b-c", "one--two", "one--two-1", "link"}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_of_the_package_exist(page):
    """Named like `process/multimask.py` or `benchmarks/README.md`, or run like python benchmarks/serving.py."""
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"(?m)(?:`|^)(?:python )?((?:\w+/)+\w+\.(?:py|md))\b", text):
        assert (SOURCE / name).exists() or (ROOT / name).exists(), name


def test_every_file_of_the_architecture_exists():
    """Wherever it is named: in pictures too, and without a folder."""
    named = re.findall(r"(?<![\w/])((?:[\w.-]+/)*[\w-]+\.(?:py|md|toml)\b|(?:\w+/)+(?=`))", ARCHITECTURE)
    assert len(set(named)) > 50
    places = SOURCE, ROOT, ROOT / "docs"
    assert not [name for name in named if not any((place / name).exists() for place in places)]


@pytest.mark.parametrize("row", [line for line in ARCHITECTURE.splitlines() if re.match(r"\|.*`\w+/\w+\.py`", line)])
def test_names_of_the_architecture_are_defined_where_it_says(row):
    files = [SOURCE / name for name in re.findall(r"`(\w+/\w+\.py)`", row)]
    defined = set().union(*(definitions(path) for path in files))
    named = {part for span in re.findall(r"`([A-Za-z_][\w.]*)`", row) for part in span.split(".")}
    assert named <= defined, f"{named - defined} not in {files}"


def test_the_index_has_every_guide():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert listed == {page.name for page in PAGES if page.parent.name == "docs" and page.name != "README.md"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1].strip())
def test_names_of_the_notation_are_defined_where_it_says(row):
    _, code, _, where = row
    names = re.findall(r"`([\w/]+\.py)`", where)
    files = [ROOT / name if name.startswith("tests/") else SOURCE / name for name in names]
    if not files:
        assert where.split(";")[0].strip() in ("everywhere", "arguments")
        return
    defined = set().union(*(definitions(path) for path in files))
    for span in re.findall(r"`([^`]+)`", code):
        named = set(re.findall(r"[A-Za-z_]\w+", re.sub(r'"[^"]*"', "", span)))
        assert named <= defined | IDS, f"{named - defined} not in {where.strip()}"


def test_every_cited_label_is_in_the_notation():
    cited = set()
    for path in SOURCE.rglob("*.py"):
        text = " ".join(path.read_text(encoding="utf-8").split())
        for labels in re.findall(r"\b(?:Eqs?|Thm|Prop|Algs?|Tab)\. \(([\w, -]+)\)", text):
            cited |= {label for label in re.split(r", ?", labels) if not label.startswith("_")}
    assert len(cited) > 20
    assert not {label for label in cited if label not in NOTATION}


IDS = {"id", "ids"}
"""Words of the table that are no names."""


def definitions(path: Path) -> set[str]:
    """Functions, classes, arguments, fields and variables of a file."""
    names = {path.stem}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names
