"""What holds for both pages: accessible, light, by keyboard, on a phone, under a strict policy."""

import re

import pytest
from playwright.sync_api import Page, Response, expect

from support.browser import PHONE, audit
from support.page_states import STATES, VIEWS, State, agent, board, console
from support.pages_driver import ROWS, open_board, panel, verdict
from support.pages_server import World
from tocsin.web.pages import STATIC

WEIGHT_MAX = 75_000
KEY = "operator-key"
WITH_TABLES = (board, agent, console, *VIEWS)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_the_page_is_accessible(page: Page, world: World, state: State) -> None:
    """An audit finds nothing wrong, in light and dark; on a small phone nothing is cut off.

    On a phone, where a table looks like cards, it is still a table for a screen reader.
    """
    page.emulate_media(reduced_motion="reduce")
    state(page, world)
    assert audit(page) == []

    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    assert audit(page, "color-contrast") == []

    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360

    if state in WITH_TABLES:
        page.set_viewport_size(PHONE)
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        assert audit(page) == []


@pytest.mark.parametrize("state", [board, console])
def test_is_light(page: Page, world: World, state: State) -> None:
    """A page weighs at most 75 kB without its data, uncompressed."""
    answers: list[Response] = []
    page.on("response", lambda answer: answers.append(answer))  # noqa: PLW0108 - playwright marks its handlers
    state(page, world)

    sizes = {answer.url: len(answer.body()) for answer in answers if "/api/" not in answer.url}
    assert sum(sizes.values()) <= WEIGHT_MAX, sizes
    assert not any(url.endswith("types.js") for url in sizes)


@pytest.mark.parametrize(("width", "height"), [(390, 844), (360, 740)])
def test_the_first_screen_of_a_phone_shows_four_agents(page: Page, world: World, width: int, height: int) -> None:
    """With the banner in full: when the round ends, and what there is to win."""
    page.set_viewport_size({"width": width, "height": height})
    world.current_rounds["waiting"] = []
    open_board(page)

    expect(page.locator("#round p")).to_have_count(2)
    bottoms = page.locator(ROWS).evaluate_all("(rows) => rows.map((row) => row.getBoundingClientRect().bottom)")
    assert sum(bottom <= height for bottom in bottoms) >= 4
    cut = "(lines) => lines.filter((line) => line.scrollWidth > line.clientWidth).length"
    assert page.locator("#round p").evaluate_all(cut) == 0


def test_the_leaderboard_by_keyboard(page: Page, world: World) -> None:
    """From the address bar: skip the header, search, sort, open an agent, close it; focus is always visible."""
    open_board(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the board")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("radio", name="All")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Agent", exact=True)).to_be_focused()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("th.agent")).to_have_attribute("aria-sort", "ascending")
    page.locator(f"{ROWS} a").first.focus()
    page.keyboard.press("Enter")
    expect(panel(page).get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(f"{ROWS} a").first).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_the_console_by_keyboard(page: Page, world: World) -> None:
    """The key, a pause and its confirmation need no mouse."""
    page.goto("/console")
    expect(page.get_by_label("Admin key")).to_be_focused()
    page.keyboard.type(KEY)
    page.keyboard.press("Enter")
    expect(verdict(page)).to_be_focused()
    for _ in range(2):
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Pause…")).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_label("1 h").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_label("15 min")).to_be_checked()
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(verdict(page)).to_have_text("Paused")


def test_motion_is_reduced_on_request(page: Page, world: World) -> None:
    """With reduced motion nothing is animated, not even a changed value."""
    page.emulate_media(reduced_motion="reduce")
    page.clock.install()
    open_board(page)
    world.rows[0].update(tradeCount=10**6, pnlUsd=10**6)
    page.clock.fast_forward(31_000)

    expect(page.locator(f"{ROWS} .trades").first).to_have_text("1,000,000")
    assert page.evaluate("document.getAnimations().length") == 0


def test_a_changed_value_is_marked(page: Page, world: World) -> None:
    """Without that request, a changed value is highlighted for a moment."""
    page.clock.install()
    open_board(page)
    world.rows[0]["tradeCount"] = 10**6
    page.clock.fast_forward(31_000)

    page.wait_for_function("() => document.getAnimations().length > 0")


def test_sources_parse_no_markup() -> None:
    """No page or module has a way to turn text into markup or code, or to reach another origin."""
    sources = [path for path in STATIC.rglob("*") if path.suffix in {".html", ".js", ".css"}]
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|\sstyle=|\son[a-z]+=\""
        r"|<script>|@import|url\(|src=\"(?!/static/)"
    )
    assert len(sources) > 20
    for source in sources:
        assert not forbidden.search(source.read_text()), source
