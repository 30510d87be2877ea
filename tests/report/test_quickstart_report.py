"""The page that the quickstart ends with, told without any training: what it says, and that it fits its window."""

import os
import re
import shutil
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from multimdm.report import quickstart_report as written
from multimdm.report.quickstart_report import Story, compared, figures, quickstart_report
from support.told_story import MODELS, STEPS, told_story

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SCREENSHOTS = Path(os.environ.get("MULTIMDM_SCREENSHOTS", "runs/report-screenshots"))


@pytest.fixture(scope="module")
def story() -> Story:
    return told_story()


@pytest.fixture(scope="module")
def drawn(story):
    """All figures; losses of training are left empty, since nothing was trained."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("training_figure", "distillation_figure"):
            patch.setattr(written, name, lambda *_: Figure())
        return figures(story)


@pytest.fixture(scope="module")
def page(story, drawn) -> str:
    return quickstart_report(story, drawn)


def test_legends_name_the_order_of_reveal_and_both_limits(drawn):
    masked = [f"{label} (revealed at random)" for label in MODELS[:4]]
    models = [*masked, "quantile noise (surest first)", "perfect network (revealed at random)"]
    for name, lines in (("quality", ["real stories", "AR, 48 calls"]), ("validity", ["AR, 48 calls"])):
        figure, _ = drawn[name]
        assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [*models, *lines]


def test_no_figure_of_samples_is_empty(drawn):
    for name in ("quality", "validity", "variety"):
        lines = [line for line in drawn[name][0].axes[0].get_lines() if len(line.get_xdata()) == len(STEPS)]
        assert len(lines) >= 6, "models and the perfect network, besides what bars are made of"
        assert all(max(line.get_ydata()) > 0 for line in lines)


def test_it_opens_with_a_sentence_then_contents_then_texts_with_wrong_words_marked(page):
    order = ['class="lead"', "<nav", 'id="what-each-model-writes"', "<mark>", "<img", "<table", "<details"]
    places = [page.index(piece) for piece in order]
    assert places == sorted(places)


def test_comparisons_are_a_table_of_ratios(story, page):
    (table,) = re.findall(r'<table[^>]*class="[^"]*ratios[^"]*".*?</table>', page, flags=re.DOTALL)
    assert table.count("<tr>") == 1 + len(compared(story))
    for words in ("times lower", "[", "entropy not reached"):
        assert words in table
    section = page[page.index('id="who-is-better-in-numbers"') : page.index("<details")]
    assert section.count("<p") <= 1, "one note, and no paragraphs of numbers"


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: make test-browser installs it")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_it_does_not_scroll_sideways(page, width, scheme, tmp_path):
    """Folded and unfolded; at 1280 no table does either. Pictures of it are kept for people to look at."""
    playwright = pytest.importorskip("playwright.sync_api")
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        opened.goto(file.as_uri())
        for unfolded in (False, True):
            opened.evaluate(f"document.querySelectorAll('details').forEach(one => one.open = {str(unfolded).lower()})")
            assert opened.evaluate("document.documentElement.scrollWidth") <= width
            name = f"{scheme}-{width}-{'unfolded' if unfolded else 'folded'}.png"
            opened.screenshot(path=SCREENSHOTS / name, full_page=True)
            scrolling = opened.evaluate(
                "[...document.querySelectorAll('main :not(img)')].filter(one => one.clientWidth && one.scrollWidth > "
                "one.clientWidth + 1 && getComputedStyle(one).overflowX !== 'visible').map(one => one.innerText)"
            )
            assert width < 1280 or scrolling == []
            pictures = "[...document.querySelectorAll('figure img')].map(one => one.getBoundingClientRect().width)"
            assert min(size for size in opened.evaluate(pictures) if size) >= 400, "its legend can be read"
        browser.close()
