"""An open board on the real routes shows what happens on chain without a reload."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from holdfast.types import Database
from stacks_simulator.addresses import address_of
from support.web_thread import SWAP, served_in_thread
from tocsin.board.board import publish
from tocsin.board.publish import board_at
from tocsin.prices.store import PEGS

LOOK_MS = 90_000  # for a slow machine; the stream itself checks once a second


async def another_trade(db: Database, number: int) -> None:
    """Add another trade of the same agent, in a later block."""
    row = SWAP.replace("'0x' || hex(zeroblob(32))", "?3").replace("1778700600, 1,", "1778700700, ?4,")
    txid = f"0x{number:064x}"
    await db.prepare(row).bind(address_of("deployer"), next(iter(PEGS)), txid, number).run()


def test_a_trade_is_on_an_open_board_without_a_reload(browser: Browser, tmp_path: Path) -> None:
    """In the strip as soon as it is recorded, in the table as soon as the board is published."""
    with served_in_thread(tmp_path) as running:
        page = browser.new_page()
        with page.expect_response("**/api/competition/events"):  # it reports only what happens after it
            page.goto(f"http://127.0.0.1:{running.port}/leaderboard")
        expect(page.locator("#strip-trades li")).to_have_count(1)
        expect(page.locator("#rows tr")).to_have_count(1)
        deps = running.tocsin.deps

        async def trade() -> None:
            await another_trade(deps.db, 7)
            await publish(deps.kv, await board_at(deps.db, deps.kv, deps.clock.now(), deps.rules))

        running.wait_for(trade())
        expect(page.locator("#strip-trades li")).to_have_count(2, timeout=LOOK_MS)
        expect(page.locator("#rows td.trades")).to_contain_text("2", timeout=LOOK_MS)
        page.close()
