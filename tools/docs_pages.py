"""Pages of the site that lie outside of docs/, and links between all of them: a hook of mkdocs.

In the repository a link is a path from one file to another. On the site some files have other places, so links are
mapped from one to the other; a link to a file that the site does not have is an error.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = "docs/"
MOVED = {
    "README.md": "index.md",
    "docs/README.md": "guides.md",
    "benchmarks/README.md": "benchmarks.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "LICENSE.txt",
    "CITATION.cff": "CITATION.cff",
    "notebooks/first_steps.ipynb": "notebooks/first_steps.ipynb",
    "notebooks/own_text.ipynb": "notebooks/own_text.ipynb",
}
"""File of the repository -> its place on the site, where that is not the same path below docs/."""
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_CODE = re.compile(r"^(```+|~~~+).*?^\1[ ]*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def place_of(file: str) -> str:
    """Where a file of the repository is on the site; a LookupError if it is not there."""
    if file in MOVED:
        return MOVED[file]
    if file.startswith(DOCS):
        return file.removeprefix(DOCS)
    raise LookupError(f"{file} is not on the site; give it a place in MOVED of tools/docs_pages.py, or name it in code")


def with_site_links(text: str, file: str) -> str:
    """The text of this file of the repository, with links as they are on the site."""
    own = posixpath.dirname(place_of(file))

    def moved(link: str) -> str:
        path, hash_, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return link
        target = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
        return posixpath.relpath(place_of(target), own or ".") + hash_ + anchor

    return outside_code(text, lambda part: _LINK.sub(lambda found: moved(found[0]), part))


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text, changed where it is no code."""
    parts, end = [], 0
    for code in _CODE.finditer(text):
        parts += [change(text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(text[end:])])


def on_files(files: Any, config: Any) -> Any:
    """Of mkdocs: add what lies elsewhere."""
    from mkdocs.structure.files import File  # pyright: ignore[reportMissingImports]: only make docs installs it

    files.remove(files.src_uris["README.md"])
    for file, place in MOVED.items():
        if place.endswith(".md"):
            files.append(File.generated(config, place, content=(ROOT / file).read_text(encoding="utf-8")))
        else:
            files.append(File.generated(config, place, abs_src_path=str(ROOT / file)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Of mkdocs: links as they are on the site."""
    place = str(page.file.src_uri)
    origin = {moved: file for file, moved in MOVED.items()}
    return with_site_links(markdown, origin.get(place, DOCS + place))
