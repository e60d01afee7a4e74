"""An open board, on the real routes: what happens on chain is on the page before anybody asks for it."""

import re
from pathlib import Path

from playwright.sync_api import Browser, expect

from support.browser import audit
from support.web_thread import another_trade, served_in_thread
from tocsin.competition.published_board import publish
from tocsin.simulator.addresses import address_of
from tocsin.tasks.publish_board import board_at

LOOK_MS = 90_000  # for a slow machine; the stream itself looks once a second


def test_a_trade_is_on_an_open_board_without_a_reload(browser: Browser, tmp_path: Path) -> None:
    """In the strip as soon as it is recorded, in the table as soon as the board is published."""
    with served_in_thread(tmp_path) as running:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{running.port}/leaderboard")
        expect(page.locator("#strip-trades li")).to_have_count(1)
        expect(page.locator("#rows tr")).to_have_count(1)
        page.wait_for_timeout(1_500)  # the stream tells what comes after it was opened
        site = running.site

        async def trade() -> None:
            await another_trade(site.db, 7)
            await publish(site.kv, await board_at(site.db, site.kv, site.clock.now(), site.rules))

        running.wait_for(trade())
        expect(page.locator("#strip-trades li")).to_have_count(2, timeout=LOOK_MS)
        expect(page.locator("#rows td.trades")).to_contain_text("2", timeout=LOOK_MS)
        page.close()


def test_the_page_of_an_agent_needs_no_script_and_is_accessible(browser: Browser, tmp_path: Path) -> None:
    """With JavaScript switched off everything is there; with it, an audit finds nothing wrong, also in dark."""
    with served_in_thread(tmp_path) as running:
        address = f"http://127.0.0.1:{running.port}/agents/{address_of('deployer')}"
        plain = browser.new_context(java_script_enabled=False)
        page = plain.new_page()
        page.goto(address)
        expect(page.get_by_role("heading", name="Latest trades")).to_be_visible()
        expect(page.get_by_role("link", name=re.compile("^0x"))).to_have_count(1)
        expect(page.locator("#copy-link")).to_be_hidden()
        plain.close()

        page = browser.new_page()
        page.goto(address)
        assert audit(page) == []
        page.emulate_media(color_scheme="dark")
        assert audit(page, "color-contrast") == []
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.goto(f"{address}/card")
        assert audit(page) == []
        page.goto(f"http://127.0.0.1:{running.port}/nowhere")
        assert audit(page) == []
        page.close()
