"""The page shows texts as text: nothing that it is given becomes markup, and marks of direction stay inside."""

import re
from importlib.resources import files

PAGE = files("multimdm.serving") / "page"


def test_nothing_is_read_as_markup():
    for script in PAGE.iterdir():
        if script.name.endswith((".js", ".html")):
            text = script.read_text(encoding="utf-8")
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)


def test_texts_and_tokens_are_isolated():
    style = (PAGE / "playground.css").read_text(encoding="utf-8")
    (rule,) = re.findall(r"([^}/]*)\{ unicode-bidi: isolate; \}", style)
    selectors = {part.strip() for part in rule.split(",")}
    assert selectors == {".token > *", ".candidate > *", ".history li > *", ".result-text"}
