"""One agent's trades, token by token."""

import re

import pytest
from playwright.sync_api import Page, expect

from support.pages_driver import MINUS, open_agent, open_board, panel, row_of
from support.pages_server import World, now_ms
from support.pages_world import AEUSDC, OBSCURE, SBTC, STX, Json, trade_of

TXID = "0x" + "ab" * 32


def swap(sender: str, given: tuple[str, str], received: tuple[str, str], number: int = 0) -> Json:
    txid, at_s = f"0x{number:064x}" if number else TXID, now_ms() // 1000 - 3600
    return trade_of(sender, txid=txid, given=given, received=received, at_s=at_s).to_json()


@pytest.fixture
def address(world: World) -> str:
    """An agent with two priced trades, and one that cannot be priced."""
    address = str(world.rows[0]["stxAddress"])
    world.trades[address] = [
        swap(address, (STX, "100000000"), (SBTC, "123456789012345678901")),
        swap(address, (SBTC, "100000"), (AEUSDC, "90000000")),
        swap(address, (STX, "5000000"), (OBSCURE, "17")),
    ]
    world.rows[0].update(tradeCount=3, unpricedTokens=[OBSCURE])
    return address


def test_trades_token_by_token(page: Page, world: World, address: str) -> None:
    """Amounts are exact at any size, net per token at current prices; trades link to the explorer."""
    open_board(page)
    shown = open_agent(page, address)

    first = shown.locator(".trades li").first
    expect(first).to_contain_text("100 STX")
    expect(first).to_contain_text("1,234,567,890,123.45 sBTC")
    link = first.get_by_role("link")
    expect(link).to_have_attribute("href", f"https://explorer.hiro.so/txid/{TXID}?chain=mainnet")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    stx = shown.locator(".tokens li").filter(has_text="STX").first
    expect(stx).to_contain_text(f"net {MINUS}100 at $0.6142 · 2 trades")
    expect(stx).to_contain_text(f"{MINUS}$61.42")
    expect(shown.locator(".tokens li").filter(has_text="aeUSDC")).to_contain_text("+$90.00")


def test_unpriced_trades_are_left_out_and_counted(page: Page, address: str) -> None:
    """A trade with an unpriced side counts on neither side, and the panel shows how many there are."""
    open_board(page)
    shown = open_agent(page, address)

    expect(shown.locator(".tokens li").filter(has_text="kangaroo")).to_contain_text("unpriced")
    expect(shown).to_contain_text("1 trade is left out of P&L")
    expect(shown.locator(".trades li").last).to_contain_text("17 units kangaroo")


def test_trade_activity(page: Page, address: str) -> None:
    """The chart of the last thirty days has a description in words."""
    open_board(page)
    shown = open_agent(page, address)

    expect(shown.get_by_role("img", name="Trades per day over the last 30 days, 3 in all")).to_be_visible()


def test_a_link_opens_an_agent_and_back_closes_it(page: Page, address: str) -> None:
    """An agent's address is in the link; Back and Escape lead to the board, and focus to the row."""
    open_board(page, f"?sort=volume&agent={address}")
    panel(page)
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    expect(page).to_have_url(re.compile(r"\?sort=volume$"))

    open_agent(page, address)
    expect(page).to_have_url(re.compile(f"agent={address}$"))
    page.go_back()

    expect(page.locator("#panel")).to_be_hidden()
    expect(row_of(page, address).locator("a")).to_be_focused()


def test_an_address_that_is_not_on_the_board(page: Page) -> None:
    """A link to an agent without trades explains that."""
    open_board(page, "?agent=SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR")

    expect(panel(page)).to_contain_text("This address is not on the board")
    expect(panel(page)).to_contain_text("No verified trades yet")


def test_trades_that_cannot_be_loaded(page: Page, world: World, address: str) -> None:
    """The reason is shown, with a button to try again."""
    world.faults["/api/competition/trades"] = (503, "The database is busy.")
    open_board(page)
    shown = open_agent(page, address)
    expect(shown.get_by_role("alert")).to_contain_text("The database is busy.")

    world.faults.clear()
    shown.get_by_role("button", name="Try again").click()

    expect(shown.locator(".trades li")).to_have_count(3)


def test_many_trades_come_in_steps(page: Page, world: World, address: str) -> None:
    """A long history is loaded page by page and shown step by step; everything loaded is added up."""
    world.trades[address] = [swap(address, (STX, "1000000"), (AEUSDC, "1000000"), number) for number in range(1, 1301)]
    open_board(page)
    shown = open_agent(page, address)
    expect(shown.locator(".trades li")).to_have_count(25)
    expect(shown.get_by_role("heading", name="Trades 1,000+")).to_be_visible()
    expect(shown.locator(".tokens li").filter(has_text="aeUSDC")).to_contain_text("net +1,000 at")

    shown.get_by_role("button", name="Show more").click()

    expect(shown.locator(".trades li")).to_have_count(50)


def test_a_new_trade_appears_in_the_open_panel(page: Page, world: World, address: str) -> None:
    """When the board has news about the displayed agent, its trades are read again."""
    page.clock.install()
    open_board(page)
    shown = open_agent(page, address)
    expect(shown.locator(".trades li")).to_have_count(3)

    world.trades[address].insert(0, swap(address, (AEUSDC, "7000000"), (STX, "11000000"), 9))
    world.rows[0]["tradeCount"] = 4
    page.clock.fast_forward(31_000)

    expect(shown.locator(".trades li")).to_have_count(4)
    expect(shown.locator(".trades li").first).to_contain_text("7 aeUSDC")


def test_a_rotated_wallet_is_the_same_agent(page: Page, world: World, address: str) -> None:
    """Both wallets' trades, newest first; links and searches work with both addresses."""
    before = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR"
    older = [swap(before, (AEUSDC, "1000000"), (STX, "2000000"), number) for number in range(1, 6)]
    world.trades[before] = [{**one, "burn_block_time": one["burn_block_time"] - 3600} for one in older]
    world.trades[address][-1]["burn_block_time"] -= 7200
    world.rows[0].update(tradeCount=8, wallets=[address, before])
    open_board(page, f"?agent={before}")
    shown = panel(page)

    expect(shown.locator("#panel-title")).to_have_text(world.rows[0]["displayName"])
    expect(shown.get_by_role("heading", name="Trades 8", exact=True)).to_be_visible()
    expect(shown.get_by_role("img", name="Trades per day over the last 30 days, 8 in all")).to_be_visible()
    expect(shown.locator(".trades li").nth(2)).to_contain_text("1 aeUSDC")
    expect(shown.locator(".trades li").last).to_contain_text("kangaroo")
    assert shown.locator(".identity code").all_inner_texts()[:2] == [address, before]

    page.keyboard.press("Escape")
    page.get_by_role("searchbox").fill(before[5:20])
    expect(row_of(page, address)).to_be_visible()
    expect(page.locator("#found")).to_have_text("1 of 24 agents")


def test_many_trades_of_two_wallets_are_read_side_by_side(page: Page, world: World, address: str) -> None:
    """Of two long histories the newest trades are loaded first, whichever wallet they belong to."""
    before = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR"
    newest = now_ms() // 1000
    for place, wallet in enumerate((address, before)):
        trades = [swap(wallet, (STX, "1000000"), (AEUSDC, "1000000"), 1 + n * 2 + place) for n in range(700)]
        for number, one in enumerate(trades):
            one["burn_block_time"] = newest - number * 60
        world.trades[wallet] = trades
    world.rows[0].update(tradeCount=1400, wallets=[address, before])
    open_board(page, f"?agent={address}")
    shown = panel(page)

    expect(shown.get_by_role("heading", name="Trades 1,000+")).to_be_visible()
    asked = [request["url"] for request in world.asked("/api/competition/trades")]
    of_agent = [url for url in asked if "address=" in url]
    assert [before in url for url in of_agent] == [False, True, False, True, False]
