"""An open board on the real routes shows what happens on chain without a reload."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from support.web_thread import another_trade, served_in_thread
from tocsin.board.board import publish
from tocsin.board.publish import board_at

LOOK_MS = 90_000  # for a slow machine; the stream itself checks once a second


def test_a_trade_is_on_an_open_board_without_a_reload(browser: Browser, tmp_path: Path) -> None:
    """In the strip as soon as it is recorded, in the table as soon as the board is published."""
    with served_in_thread(tmp_path) as running:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{running.port}/leaderboard")
        expect(page.locator("#strip-trades li")).to_have_count(1)
        expect(page.locator("#rows tr")).to_have_count(1)
        page.wait_for_timeout(1_500)  # the stream reports only what happens after it was opened
        deps = running.tocsin.deps

        async def trade() -> None:
            await another_trade(deps.db, 7)
            await publish(deps.kv, await board_at(deps.db, deps.kv, deps.clock.now(), deps.rules))

        running.wait_for(trade())
        expect(page.locator("#strip-trades li")).to_have_count(2, timeout=LOOK_MS)
        expect(page.locator("#rows td.trades")).to_contain_text("2", timeout=LOOK_MS)
        page.close()
