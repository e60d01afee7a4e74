"""The visitor's time zone does not change what is shown, and the focus is not lost while the page updates."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser import watched_page
from support.pages_driver import ask_module, open_agent, open_board, open_console
from support.pages_server import PagesServer, World

KEY = "operator-key"
MAY_13 = 1_778_630_400_000  # 2026-05-13, 00:00 UTC


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Pacific/Auckland"])
def test_days_of_utc_have_their_own_date_everywhere(
    browser: Browser, server: PagesServer, world: World, zone: str
) -> None:
    """West of Greenwich midnight is the evening before; the service's days are those of UTC."""
    address = world.rows[0]["stxAddress"]
    with watched_page(browser, server.url, timezone_id=zone) as page:
        open_board(page)
        shown = open_agent(page, address)
        first = shown.locator(".axis span").first
        days_ago = "new Date(Date.now() - 29 * 86400000)"
        options = '{ day: "numeric", month: "short", timeZone: "UTC" }'
        expected = page.evaluate(f'new Intl.DateTimeFormat("en-US", {options}).format({days_ago})')

        expect(first).to_have_text(expected)
        assert ask_module(page, "format", "m.utcDay(a)", MAY_13) == "May 13"
        plot = "m.plot({ points: [{ at: a, value: 1 }], from: a, to: a + 8 * 86400000, format: String,"
        drawn = ask_module(
            page,
            "plot",
            f"{plot} label: '', dayOf: (await import('/static/js/format.js')).utcDay }})"
            ".querySelector('.times').innerText",
            MAY_13,
        )
        assert drawn.startswith("May 13")


def test_the_strip_of_trades_keeps_the_focus(page: Page, world: World) -> None:
    """It is drawn again with every new board: a link that has the focus stays the same element."""
    address = world.rows[0]["stxAddress"]
    world.trades[""] = world.trades[address]
    open_board(page)
    link = page.locator("#strip-trades a").first
    link.focus()
    before = page.locator("#strip-trades li").first.inner_text()
    for _ in range(2):
        ask_module(page, "trade-strip", "m.drawTrades([], {})")

    expect(link).to_be_focused()
    expect(page.locator("#strip-trades li").first.locator("time")).to_have_count(1)
    assert " → " in before
    assert re.search(r"^SP\w+…\w+ ", page.locator("#strip-trades li").first.inner_text())


def test_the_log_of_a_run_keeps_the_focus_while_it_runs(page: Page, world: World) -> None:
    """Each event of the run draws the view again; so does its end. A link above it keeps the focus, too."""
    run = world.runs[0]
    run.update(endedAt=None, durationMs=None, outcome="running", result={}, error=None)
    open_console(page, KEY)
    page.goto(f"/console?view=run&run={run['id']}")
    region = page.get_by_role("region", name="Log lines")
    region.focus()
    run["calls"] = 41
    world.emit("run.progress", task=run["task"], run=run["id"], done=3, total=9)
    expect(page.locator(".facts")).to_contain_text("41")
    expect(region).to_be_focused()

    link = page.locator("p.trail a")
    link.focus()
    run.update(endedAt=run["startedAt"] + 5, durationMs=5, outcome="ok", calls=42)
    world.emit("run.ended", task=run["task"], run=run["id"], outcome="ok", durationMs=5, result={})

    expect(page.locator(".facts")).to_contain_text("42")
    expect(link).to_be_focused()
