"""The playground in a real browser: headless Chromium, driven by Playwright. `make test-browser` runs these."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.live_server import serving

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect, sync_playwright

expect.set_options(timeout=20_000)  # machines are shared
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SCREENSHOTS = Path(os.environ.get("MULTIMDM_SCREENSHOTS", "runs/playground-screenshots"))
PROMPT = "Lily raced to the harbor"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: make test-browser installs it"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Its sandbox needs rights that containers do not have; the page under test is our own.
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser, live) -> Iterator[Page]:
    """A page that must not complain; motion is off, so that what is shown is at rest."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    opened, complaints = context.new_page(), []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda request: complaints.extend([request.url] * (not request.url.startswith(live.url))))
    opened.goto(live.url)
    expect(opened.locator("#model option")).to_have_count(2)
    yield opened
    context.close()
    assert complaints == []


def set_slider(page: Page, name: str, value: float) -> None:
    page.locator(f"#{name}").fill(str(value))


def generate(page: Page) -> None:
    page.click("#generate")
    expect(page.locator("#panels .panel .cost b").first).to_be_visible()
    expect(page.locator("#generate")).not_to_have_attribute("aria-busy", "true")


def tokens(page: Page, kind: str, panel: int = 0) -> int:
    return page.locator(".panel").nth(panel).locator(f".grid .{kind}").count()


def test_generate_play_and_scrub(page, served_models):
    page.fill("#prompt", PROMPT)
    set_slider(page, "steps", 6)
    set_slider(page, "seed", 4)
    generate(page)
    expected = served_models["many"].model.complete(PROMPT, steps=6, seed=4).texts[0]
    expect(page.locator(".result-text")).to_have_text(expected)
    expect(page.locator(".cost")).to_contain_text("6 network calls")
    expect(page.locator("#where")).to_have_text("step 6 of 6 · t = 0")
    assert tokens(page, "given") == 5
    assert tokens(page, "k-clean") == 43
    set_slider(page, "scrub", 0)
    assert tokens(page, "k-clean") == 0
    assert tokens(page, "k-designated") + tokens(page, "k-other") == 43
    page.click("#forward")
    expect(page.locator("#where")).to_have_text("step 1 of 6 · t = 0.83")
    page.click("#back")
    page.click("#play")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Pause")
    page.click("#play")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Play")
    page.click("#play")
    expect(page.locator("#where")).to_have_text("step 6 of 6 · t = 0", timeout=10_000)


def test_the_map_scrubs_too(page):
    set_slider(page, "steps", 8)
    generate(page)
    box = page.locator(".map").bounding_box()
    page.mouse.click(box["x"] + 20, box["y"] + 2)
    expect(page.locator("#where")).to_have_text("step 0 of 8 · t = 1")


def test_infilling_keeps_what_is_given(page):
    page.fill("#prompt", "Lily found a")
    page.click("#gap")
    page.click("#gap")
    page.locator("#prompt").press_sequentially(". She walked home with it.")
    expect(page.locator("#prompt")).to_have_value("Lily found a [MASK] [MASK]. She walked home with it.")
    expect(page.locator("#length")).to_be_disabled()
    generate(page)
    assert tokens(page, "given") == 10
    assert page.locator(".grid .token:not(.given)").count() == 2
    expect(page.locator(".cost")).to_contain_text("2 tokens made")
    expect(page.locator(".result-text")).to_have_text(re.compile("^Lily found a "))


def test_compare_steps_and_checkpoints(page):
    page.fill("#prompt", PROMPT)
    page.check("#compare")
    set_slider(page, "steps", 9)
    set_slider(page, "steps-b", 3)
    page.select_option("#model-b", "one")
    generate(page)
    expect(page.locator(".panel h2")).to_have_text(["many, 9 steps", "one, 3 steps"])
    costs = page.locator(".panel .cost")
    expect(costs.nth(0)).to_contain_text("9 network calls")
    expect(costs.nth(1)).to_contain_text("3 network calls")
    expect(costs.nth(1)).to_contain_text("ms")
    set_slider(page, "scrub", 3)  # a third of the way, in both
    assert tokens(page, "k-other", 1) == 0  # with one mask there is no other
    assert 0 < tokens(page, "k-designated", 1) <= 43
    set_slider(page, "scrub", 9)
    assert tokens(page, "k-clean", 0) == tokens(page, "k-clean", 1) == 43


def test_a_comparison_is_at_equal_steps_until_the_reader_says_otherwise(page):
    page.check("#compare")
    set_slider(page, "steps", 7)
    expect(page.locator("#steps-b")).to_have_value("7")
    set_slider(page, "steps-b", 3)
    set_slider(page, "steps", 5)
    expect(page.locator("#steps-b")).to_have_value("3")


def test_examples_are_asked_by_a_click(page):
    expect(page.locator("#knows")).to_contain_text("404 words")
    expect(page.locator("#empty")).to_be_visible()  # only models that come with the package begin by themselves
    page.click(f"text={PROMPT} …")
    expect(page.locator(".result-text")).to_have_text(re.compile(f"^{PROMPT}"))
    expect(page.locator("#prompt")).to_have_value(PROMPT)


def test_built_in_models_show_a_story_in_two_calls_without_a_click(browser):
    from multimdm.builtin import SERVED
    from multimdm.serving.catalog import open_checkpoints

    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    with serving(open_checkpoints(SERVED)) as live:
        page.goto(live.url)
        expect(page.locator(".panel h2")).to_have_text("tales, 2 steps")
        expect(page.locator(".cost")).to_contain_text("2 network calls")
        assert len(page.locator(".result-text").inner_text().split()) > 20
        expect(page.locator("#model option")).to_have_text(list(SERVED))
        expect(page.locator("h1 a")).to_have_text("multimdm")
    context.close()


def test_history_and_candidates_of_a_token(page):
    generate(page)
    set_slider(page, "scrub", 0)
    page.locator(".grid .token").nth(20).hover()
    inspector = page.locator("#inspector")
    expect(inspector).to_contain_text("Position 21")
    expect(inspector.locator(".candidate")).to_have_count(5)
    rows = inspector.locator(".history li")
    expect(rows.first).to_contain_text("t = 1")
    expect(rows.last).to_contain_text("t = 0")
    assert 2 <= rows.count() <= 9
    page.mouse.move(2, 2)
    expect(inspector).to_be_hidden()
    page.locator(".grid .token").nth(20).click()
    page.mouse.move(2, 2)
    expect(inspector).to_be_visible()
    page.keyboard.press("Escape")
    expect(inspector).to_be_hidden()


def test_everything_by_keyboard(page):
    set_slider(page, "steps", 8)
    page.focus("#prompt")
    page.keyboard.type(PROMPT)
    page.keyboard.press("Control+Enter")
    expect(page.locator(".cost")).to_contain_text("network calls")
    page.focus("#scrub")
    page.keyboard.press("Home")
    expect(page.locator("#where")).to_have_text("step 0 of 8 · t = 1")
    page.locator(".grid .token").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    expect(page.locator(".grid .token").last).to_be_focused()
    expect(page.locator("#inspector")).to_contain_text("Position 48")
    page.keyboard.press("Enter")
    expect(page.locator("#inspector")).to_have_class(re.compile("pinned"))
    page.keyboard.press("Escape")
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#where")).to_have_text("step 1 of 8 · t = 0.88")


def test_a_state_can_be_shared(page, browser, live):
    page.fill("#prompt", "Lily found a [MASK]. & <i>")
    page.fill("#prompt", "Tom")
    set_slider(page, "steps", 5)
    set_slider(page, "seed", 77)
    page.check("#compare")
    page.select_option("#model-b", "one")
    generate(page)
    texts = page.locator(".result-text").all_inner_texts()
    other = browser.new_context(reduced_motion="reduce")
    copy = other.new_page()
    copy.goto(page.url)
    expect(copy.locator(".result-text")).to_have_text(texts)
    expect(copy.locator("#steps-value")).to_have_text("5")
    assert "key" not in page.url
    other.close()


def test_a_link_holds_the_step_that_is_shown(page):
    set_slider(page, "steps", 8)
    generate(page)
    set_slider(page, "scrub", 3)
    page.click("#share")
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator("#where")).to_have_text("step 3 of 8 · t = 0.63")


def test_a_link_put_into_an_open_page(page):
    generate(page)
    page.evaluate("() => { location.hash = '#p=Tom&k=3&s=5'; }")
    expect(page.locator(".panel h2")).to_have_text("many, 3 steps")
    expect(page.locator(".result-text")).to_have_text(re.compile("^Tom "))


def test_a_link_to_a_model_that_is_not_here(page):
    page.evaluate("() => { location.hash = '#m=gone&k=2'; }")
    expect(page.locator("#problem")).to_contain_text("The link names gone")
    expect(page.locator(".panel h2")).to_have_text("many, 2 steps")


def test_when_the_second_side_fails_the_first_stays(page):
    sides = iter(["continue_", "abort"])
    page.route("**/v1/trace", lambda route: getattr(route, next(sides))())
    set_slider(page, "steps", 8)
    page.check("#compare")
    page.click("#generate")
    expect(page.locator("#problem")).to_contain_text("The server does not answer")
    expect(page.locator(".panel")).to_have_count(1)
    set_slider(page, "scrub", 5)
    expect(page.locator("#where")).to_have_text("step 5 of 8 · t = 0.38")


def test_text_stays_text(page):
    """A prompt with HTML is refused by this tokenizer, and the refusal shows it as text."""
    attack = "<img src=x onerror=\"document.title='broken'\"><b>bold</b>"
    page.fill("#prompt", attack)
    page.click("#generate")
    expect(page.locator("#problem")).to_contain_text("<img")
    assert page.locator("main img, main b:has-text('bold')").count() == 0
    expect(page).to_have_title("multimdm playground")


def test_tokens_with_html_stay_text(browser, html_server):
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(html_server.url)
    expect(page.locator("#model option")).to_have_count(1)
    page.fill("#prompt", "<script>document.title='broken'</script> [MASK] [MASK]")
    generate(page)
    expect(page.locator(".result-text")).to_contain_text("<script>document.title='broken'</script>")
    page.locator(".grid .token").nth(1).hover()
    expect(page.locator("#inspector")).to_contain_text("<img/src=x")
    assert page.locator("main script, main img, #inspector img, #inspector script").count() == 0
    expect(page).to_have_title("multimdm playground")
    context.close()


@pytest.fixture
def html_server():
    """A model whose every token is HTML."""
    from multimdm.serving.catalog import ServedModel
    from support.tiny_models import word_model, word_tokenizer

    words = [
        "<script>document.title='broken'</script>",
        "<img/src=x/onerror=document.title='broken'>",
        "<b>x</b>",
        "<i>",
    ]
    with serving({"<b>html</b>": ServedModel.of("<b>html</b>", word_model(word_tokenizer(words)))}) as live:
        yield live


def test_an_error_is_shown_when_the_server_is_gone(browser, served_models):
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    with serving(served_models) as live:
        page.goto(live.url)
        generate(page)
    page.click("#generate")
    expect(page.locator("#problem")).to_contain_text("The server does not answer")
    expect(page.locator("#problem")).to_have_attribute("role", "alert")
    context.close()


def test_a_key_is_asked_for(browser, served_models):
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    with serving(served_models, api_key="sesame") as live:
        page.goto(live.url)
        expect(page.locator("#problem")).to_contain_text("API key")
        page.fill("#key", "sesame")
        page.click("#generate")
        expect(page.locator(".cost")).to_contain_text("network calls")
        assert "sesame" not in page.url
    context.close()


def test_controls_start_as_the_model_advises_and_follow_another(browser, served_models):
    from multimdm.samplers import SamplingAdvice
    from multimdm.serving.catalog import ServedModel
    from support.tiny_models import shown_tales_model

    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    advised = ServedModel.of("advised", shown_tales_model(SamplingAdvice(order="rewrite", temperature=0, steps=5)))
    with serving({"advised": advised, "many": served_models["many"]}) as live:
        page.goto(live.url)
        for model, values in (("advised", ("rewrite", "0", "5")), ("many", ("ancestral", "1", "4"))):
            page.select_option("#model", model)
            for name, value in zip(("sampler", "temperature", "steps"), values, strict=True):
                expect(page.locator(f"#{name}")).to_have_value(value)
        expect(page.locator("#sampler option[value=rewrite]")).to_be_disabled()
        set_slider(page, "steps", 3)  # what is moved stays
        page.select_option("#model", "advised")
        expect(page.locator("#sampler")).to_have_value("rewrite")
        expect(page.locator("#steps")).to_have_value("3")
        set_slider(page, "seed", 4)
        generate(page)
        expect(page.locator(".result-text")).to_have_text(advised.model.sample(1, steps=3, seed=4).texts[0])
    context.close()


def test_a_link_waits_for_the_key(browser, served_models):
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    with serving(served_models, api_key="sesame") as live:
        page.goto(f"{live.url}/#p=Tom&k=3&s=5")
        page.fill("#key", "sesame")
        page.keyboard.press("Control+Enter")
        expect(page.locator(".panel h2")).to_have_text("many, 3 steps")
        expect(page.locator(".result-text")).to_have_text(re.compile("^Tom "))
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_screenshots(browser, live, scheme, width):
    """Kept for people to look at; and nothing may stick out sideways."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(live.url)
    page.fill("#prompt", "Lily raced to the harbor with her neighbor.")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{scheme}-{width}-start.png")
    generate(page)
    set_slider(page, "scrub", 4)
    page.screenshot(path=SCREENSHOTS / f"{scheme}-{width}-draft.png", full_page=True)
    page.locator(".grid .token").nth(20).click()
    page.screenshot(path=SCREENSHOTS / f"{scheme}-{width}-token.png")
    page.keyboard.press("Escape")
    page.check("#compare")
    page.select_option("#model-b", "one")
    generate(page)
    set_slider(page, "scrub", 4)
    page.screenshot(path=SCREENSHOTS / f"{scheme}-{width}-compare.png", full_page=True)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    context.close()


@pytest.mark.parametrize("width", [1280, 400])
def test_the_description_of_the_interface(page, live, width):
    """It loads nothing from elsewhere (the fixture would hear a complaint), and fits a narrow window."""
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{live.url}/docs")
    expect(page.get_by_role("heading", name="POST /v1/completions")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.screenshot(path=SCREENSHOTS / f"docs-{width}.png", full_page=True)
