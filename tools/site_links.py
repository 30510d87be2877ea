"""Check that every link, picture, script and style of a built site leads to something in it.

    python tools/site_links.py runs/site

mkdocs checks what it reads; this checks what it wrote, the API's pages and the theme included. Addresses of other sites
are left alone.
"""

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_ATTRIBUTES = ("href", "src")


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)
            elif name in _ATTRIBUTES:
                self.links.append(value)


@cache
def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page


def broken_links(site: Path) -> list[str]:
    """One line for each link that leads nowhere."""
    site = site.resolve()
    return [
        f"{page.relative_to(site)}: {link}"
        for page in sorted(site.rglob("*.html"))
        for link in _read(page).links
        if not _leads_somewhere(link, page, site)
    ]


def _leads_somewhere(link: str, page: Path, site: Path) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    path = unquote(parts.path)
    base = site if path.startswith("/") else page.parent
    target = (base / path.lstrip("/")).resolve() if path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site) or not target.is_file():
        return False
    return not parts.fragment or target.suffix != ".html" or unquote(parts.fragment) in _read(target).anchors


def main() -> int:
    """0 if all is well."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print(f"usage: python {sys.argv[0]} SITE, a directory of pages", file=sys.stderr)
        return 2
    site = Path(sys.argv[1])
    broken = broken_links(site)
    pages = sum(1 for _ in site.rglob("*.html"))
    print("\n".join([*broken, f"{pages} pages, {len(broken)} broken links"]))
    return 1 if broken or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
