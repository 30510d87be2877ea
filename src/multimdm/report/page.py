"""A page of HTML that stands alone: no script, no font, no picture from elsewhere."""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from multimdm._inert import inert

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --soft: #5c6670; --paper: #fcfcfb; --card: #ffffff;
  --line: #e1e5e8; --accent: #00798c; --clean: #d9f5f1; --designated: #8fe3e7; --other: #cfe3fb; --state: #10262b;
  --wrong: #ffd0c9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8eb; --soft: #9aa5af; --paper: #14181c; --card: #1b2126;
  --line: #2e363d; --accent: #4cc3d4; --clean: #17403d; --designated: #12727a; --other: #28466b; --state: #e8f3f4;
  --wrong: #7a2a26; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: clamp(1.5rem, 4.5vw, 2.1rem); line-height: 1.2; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.4rem 0 .5rem; }
p { margin: .4rem 0 .8rem; max-width: 46rem; }
.soft { color: var(--soft); }
.warning { color: #c1121f; font-weight: 600; }
@media (prefers-color-scheme: dark) { .warning { color: #ff7b7b; } }
.scroll { overflow-x: auto; margin: .6rem 0 1rem; border: 1px solid var(--line); border-radius: 8px;
  background: var(--card); }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .5rem .65rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--line); }
thead th { border-top: 0; white-space: normal; color: var(--soft); font-weight: 600; vertical-align: bottom; }
th:first-child { text-align: left; }
tbody th { font-weight: 400; }
td small { display: block; color: var(--soft); font-size: .78rem; }
td b { color: var(--accent); }
table.words th, table.words td { text-align: left; white-space: normal; }
table.settings td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
table.settings th { color: var(--soft); white-space: nowrap; width: 1%; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .6rem; max-width: 640px; background: #ffffff; border: 1px solid var(--line);
  border-radius: 8px; }
.figures.wide { display: block; overflow-x: auto; }
.wide figure { max-width: none; }
.wide img { min-width: 640px; }
figure img { display: block; width: 100%; height: auto; }
.samples { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: .8rem; }
blockquote { margin: 0; padding: .7rem 1rem; background: var(--card); border: 1px solid var(--line);
  border-left: 3px solid var(--accent); border-radius: 6px; font-size: .92rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
nav ol { margin: .6rem 0 0; padding-left: 1.3rem; columns: 2; column-gap: 2rem; max-width: 46rem; font-size: .92rem; }
a { color: var(--accent); }
p.lead { font-size: 1.12rem; max-width: 52rem; }
mark { background: var(--wrong); color: inherit; border-radius: 3px; padding: 0 .1rem; }
.side { margin: .8rem 0; border: 1px solid var(--line); border-radius: 8px; background: var(--card);
  padding: .7rem .9rem .9rem; }
.side h3 { margin: 0 0 .5rem; }
.side h3 small { color: var(--soft); font-weight: 400; margin-left: .4rem; }
.texts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)); gap: .9rem 1.4rem; }
.texts p { margin: 0; font-size: .92rem; overflow-wrap: anywhere; }
.texts b { display: block; font-size: .8rem; color: var(--soft); font-weight: 600; }
details { margin: .8rem 0; border: 1px solid var(--line); border-radius: 8px; background: var(--card); }
details > div { padding: 0 1rem 1rem; }
summary { cursor: pointer; font-weight: 600; padding: .7rem 1rem; }
table.dense { font-size: .75rem; }
table.dense th, table.dense td { padding: .3rem .22rem; }
table.dense td { white-space: normal; }
table.dense td small { font-size: .7rem; line-height: 1.25; }
table.ratios td { white-space: normal; }
.steps { margin: .6rem 0 1rem; border: 1px solid var(--line); border-radius: 8px; padding: .4rem .7rem;
  background: var(--card); }
.steps p { max-width: none; margin: .5rem 0; line-height: 1.75; font-size: .8rem; }
.steps span { display: inline-block; border-radius: 4px; padding: 0 .35rem; margin: 0 .1rem; color: var(--state);
  line-height: 1.45; }
.steps b { color: var(--soft); font-weight: 400; margin-right: .4rem; }
.k0 { background: var(--clean); } .k1 { background: var(--designated); } .k2 { background: var(--other); }
.legend span { display: inline-block; padding: .05rem .5rem; border-radius: 4px; margin-right: .5rem;
  font-size: .82rem; color: var(--state); }
@media (max-width: 520px) { nav ol { columns: 1; } details > div { padding: 0 .6rem .8rem; }
  main { padding: 1.4rem .9rem 3rem; } th, td { padding: .4rem .55rem; } }
"""


def escape(text: str) -> str:
    """Text as text: no markup, and nothing that turns or hides what stands beside it."""
    return html.escape(inert(text))


@dataclass(frozen=True)
class Markup:
    """HTML that may be put into a page as it is; everything else is escaped."""

    text: str


def page(title: str, subtitle: str, body: Iterable[Markup]) -> str:
    """The whole document."""
    content = "\n".join(part.text for part in body)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(title)}</h1>\n<p class="soft">{escape(subtitle)}</p>\n{content}\n</main>\n</body>\n</html>\n'
    )


def heading(text: str, level: int = 2) -> Markup:
    """A heading inside the page; those of the second level can be linked to."""
    name = f' id="{anchor(text)}"' if level == 2 else ""
    return Markup(f"<h{level}{name}>{escape(text)}</h{level}>")


def anchor(title: str) -> str:
    """The name by which a heading is linked to."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def contents(titles: Iterable[str]) -> Markup:
    """Links to the sections of these titles."""
    links = "\n".join(f'<li><a href="#{anchor(title)}">{escape(title)}</a></li>' for title in titles)
    return Markup(f'<nav aria-label="Contents"><ol>\n{links}\n</ol></nav>')


def folded(title: str, body: Iterable[Markup]) -> Markup:
    """A section that opens when it is asked for. The name is inside, so that a link to it opens it too."""
    content = "\n".join(part.text for part in body)
    return Markup(f'<details><summary>{escape(title)}</summary><div id="{anchor(title)}">\n{content}\n</div></details>')


def lead(text: str) -> Markup:
    """The sentence that a page opens with."""
    return Markup(f'<p class="lead">{escape(text).replace(" = ", "&nbsp;=&nbsp;")}</p>')


def side_by_side(title: str, says: str, texts: Iterable[tuple[str, Markup]]) -> Markup:
    """Texts of one author beside each other, each under a few words."""
    cells = "\n".join(f"<p><b>{escape(above)}</b>{text.text}</p>" for above, text in texts)
    return Markup(
        f'<section class="side"><h3>{escape(title)} <small>{escape(says)}</small></h3>\n'
        f'<div class="texts">\n{cells}\n</div></section>'
    )


def paragraph(text: str) -> Markup:
    """Plain words; equations such as K = 4 are not broken between lines."""
    return Markup(f'<p class="soft">{escape(text).replace(" = ", "&nbsp;=&nbsp;")}</p>')


def warning(text: str) -> Markup:
    """What must not be overlooked, in red."""
    return Markup(f'<p class="warning" role="alert">{escape(text)}</p>')


def figure_cell(value: str, below: str = "", strong: bool = False) -> Markup:
    """A number with its interval below it in small print."""
    value = f"<b>{escape(value)}</b>" if strong else escape(value)
    return Markup(value + (f"<small>{escape(below)}</small>" if below else ""))


def table(name: str, header: Sequence[str], rows: Iterable[Sequence[str | Markup]], kind: str = "") -> Markup:
    """A table whose first column says what a row is. On a narrow screen it scrolls sideways, the page does not."""
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in header)
    head = f"<thead><tr>{head}</tr></thead>\n" if header else ""
    body = "\n".join(_row(first, rest) for first, *rest in rows)
    attribute = f' class="{kind}"' if kind else ""
    return scrolling(name, f"<table{attribute}>\n{head}<tbody>\n{body}\n</tbody></table>")


def scrolling(name: str, content: str) -> Markup:
    """A named area that can be scrolled by mouse, finger and keyboard."""
    return Markup(f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">{content}</div>')


def _row(first: str | Markup, rest: Iterable[str | Markup]) -> str:
    cells = "".join(f"<td>{_inner(cell)}</td>" for cell in rest)
    return f'<tr><th scope="row">{_inner(first)}</th>{cells}</tr>'


def pictures(addresses: Iterable[tuple[str, str]], wide: bool = False) -> Markup:
    """Pictures side by side: data: address and what it shows. Wide ones take a row each and scroll on a phone."""
    images = "\n".join(f'<figure><img src="{src}" alt="{escape(alt)}"></figure>' for src, alt in addresses)
    kind = "figures wide" if wide else "figures"
    return Markup(f'<div class="{kind}">\n{images}\n</div>')


def quotations(texts: Iterable[str]) -> Markup:
    """Texts to be read."""
    quotes = "\n".join(f"<blockquote>{escape(text) or '<i>(empty)</i>'}</blockquote>" for text in texts)
    return Markup(f'<div class="samples">\n{quotes}\n</div>')


def _inner(cell: str | Markup) -> str:
    return cell.text if isinstance(cell, Markup) else escape(cell)
