"""A page of HTML that stands alone: no script, no font, no picture from elsewhere.

The HTML is in `templates/`. All that a template prints is text: `inert` first, then escaped, by the environment itself.
"""

import re
from collections.abc import Iterable
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from multimdm._inert import inert
from multimdm.report.document import Part


def page(title: str, subtitle: str, parts: Iterable[Part]) -> str:
    """The whole document."""
    return _environment().get_template("page.html").render(title=title, subtitle=subtitle, parts=list(parts))


def anchor(title: str) -> str:
    """The name by which a heading is linked to."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("multimdm.report"),
        autoescape=True,
        finalize=_inert,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"anchor": anchor, "unbroken": _unbroken, "kind": lambda part: type(part).__name__}
    return environment


def _inert(value: object) -> object:
    """Text without anything that turns or hides what stands beside it; what macros made is HTML already."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    # Addresses of pictures are long and plain: nothing in them has to be looked at one by one.
    return value if value.isascii() and value.isprintable() else inert(value)


def _unbroken(text: str) -> Markup:
    """Equations such as K = 4 are not broken between lines."""
    return escape(inert(text)).replace(" = ", Markup("&nbsp;=&nbsp;"))
