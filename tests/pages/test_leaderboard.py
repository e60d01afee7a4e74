"""The leaderboard as a visitor uses it."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from support.pages_driver import BOARD, MINUS, ROWS, names, open_board, row_of, sort_by, state
from support.pages_server import World
from support.pages_world import OBSCURE, Json, sample_board

VALUES: dict[str, Any] = {
    "agent": lambda row: (row["displayName"] or row["bnsName"] or row["stxAddress"]).lower(),
    "trades": lambda row: row["tradeCount"],
    "volume": lambda row: row["volumeUsd"],
    "pnl": lambda row: row["pnlUsd"],
    "percent": lambda row: row["pnlPercent"],
    "latest": lambda row: row["latestTradeAt"],
}


def sorted_column(page: Page) -> tuple[str, str]:
    """Return the sorted column and its direction, as assistive technology reads them."""
    header = page.locator(f"{BOARD} th[aria-sort]:not([aria-sort=none])")
    direction = header.get_attribute("aria-sort") or ""
    return header.locator("button").get_attribute("data-sort") or "", direction


def keys(page: Page) -> list[str]:
    return [str(key) for key in page.locator(ROWS).evaluate_all("rows => rows.map((row) => row.dataset.key)")]


def by(world: World, sort: str, *, reverse: bool) -> list[str]:
    value = VALUES[sort]
    rows = sorted(world.rows, key=lambda row: (-row["latestTradeAt"], row["stxAddress"]))
    priced = sorted((row for row in rows if value(row) is not None), key=value, reverse=reverse)
    unpriced = [row for row in rows if value(row) is None]
    return [row["stxAddress"] for row in priced + unpriced]


def test_shows_every_agent_by_pnl(page: Page, world: World) -> None:
    """The first view is by P&L, with rank, identity, figures and signs, not colors alone."""
    open_board(page)

    assert keys(page) == by(world, "pnl", reverse=True)
    ranks = page.locator(f"{ROWS} td.rank > span").all_inner_texts()
    assert ranks == [str(rank + 1) for rank in range(len(world.rows))]
    best = max(world.rows, key=lambda row: (row["tradeCount"], row["latestTradeAt"]))
    row = row_of(page, best["stxAddress"])
    expect(row.locator(".trades")).to_have_text(str(best["tradeCount"]))
    expect(row.locator(".volume > span")).to_have_text(f"${best['volumeUsd']:,.2f}")
    sign = "+" if best["pnlUsd"] > 0 else MINUS
    expect(row.locator(".pnl > span").first).to_have_text(f"{sign}${abs(best['pnlUsd']):,.2f}")
    at_trade = f"{sign}${abs(best['pnlAtTradeUsd']):,.2f} at trade"
    expect(row.locator(".at-trade")).to_have_text(at_trade)
    expect(row.locator(".agent small")).to_contain_text(f"#{best['erc8004AgentId']}")


def test_sorts_by_each_column_in_both_directions(page: Page, world: World) -> None:
    """A heading sorts by its column, a second press reverses it; agents without a value come last."""
    for row in world.rows[3:6]:
        row.update(volumeUsd=None, pnlUsd=None, pnlPercent=None)
    open_board(page, "?sort=latest")

    for sort in ("agent", "trades", "volume", "pnl", "percent", "latest"):
        sort_by(page, sort)
        first = sorted_column(page)[1]
        assert first == ("ascending" if sort == "agent" else "descending")
        assert keys(page) == by(world, sort, reverse=first == "descending")

        sort_by(page, sort)
        turned = "ascending" if first == "descending" else "descending"
        assert sorted_column(page) == (sort, turned)
        assert keys(page) == by(world, sort, reverse=turned == "descending")


def test_search_finds_names_addresses_and_identities(page: Page, world: World) -> None:
    """Search narrows the board, keeps each agent's rank, and has a message when no agent matches."""
    open_board(page)
    wanted = by(world, "pnl", reverse=True)[7]
    row = next(row for row in world.rows if row["stxAddress"] == wanted)

    for text in (wanted.lower(), row["btcAddress"], f"#{row['erc8004AgentId']}"):
        page.get_by_role("searchbox").fill(text)
        assert wanted in keys(page)
        expect(row_of(page, wanted).locator(".rank > span")).to_have_text("8")
    expect(page.locator("#found")).to_contain_text(f"of {len(world.rows)} agents")

    page.get_by_role("searchbox").fill("nobody has this name")
    expect(page.get_by_role("heading", name="No agent found")).to_be_visible()
    page.get_by_role("button", name="Show all agents").click()
    assert len(keys(page)) == len(world.rows)


def test_pages_of_a_thousand_agents(page: Page, world: World) -> None:
    """A thousand agents are read in pages of the API and shown in pages of twenty-five."""
    world.rows, world.trades = sample_board(1000, world.prices_as_of or 0)
    open_board(page)
    expect(page.locator("#found")).to_have_text("1,000 agents")
    expect(page.locator("#page")).to_have_text("Page 1 of 40")
    assert len(world.asked("/api/competition/leaderboard")) == 5

    page.get_by_role("button", name="Next").click()

    expect(page.locator("#page")).to_have_text("Page 2 of 40")
    assert keys(page) == by(world, "pnl", reverse=True)[25:50]
    expect(page).to_have_url(re.compile(r"/leaderboard\?page=2$"))
    page.go_back()
    expect(page.locator("#page")).to_have_text("Page 1 of 40")


def test_a_link_keeps_the_view(page: Page, world: World) -> None:
    """Sort, direction, search and page are in the address bar, and a shared link shows the same."""
    open_board(page)
    sort_by(page, "pnl")
    page.get_by_role("searchbox").fill("a")
    expect(page).to_have_url(re.compile(r"\?dir=asc&q=a$"))
    shown, address = names(page), page.url

    page.goto("about:blank")
    page.goto(address)

    expect(page.locator(ROWS)).to_have_count(len(shown))
    assert names(page) == shown
    expect(page.get_by_role("searchbox")).to_have_value("a")


def test_a_malformed_link_shows_the_board(page: Page, world: World) -> None:
    """Parts of a link that cannot be read are ignored."""
    for query in ("?sort=evil&dir=up&page=-3", "?page=999999&agent=<b>", "?sort=__proto__"):
        open_board(page, query)

        assert keys(page) == by(world, "pnl", reverse=True)
        expect(page.locator("#panel")).to_be_hidden()


def test_a_new_swap_changes_the_row_in_place(page: Page, world: World) -> None:
    """The next update brings the new figures into the same row, which moves to its new place."""
    page.clock.install()
    open_board(page)
    last = keys(page)[-1]
    mine = row_of(page, last).element_handle()
    row = next(row for row in world.rows if row["stxAddress"] == last)

    row.update(tradeCount=100_000, pnlUsd=100_000.0)
    page.clock.fast_forward(31_000)

    expect(row_of(page, last).locator(".trades")).to_have_text("100,000")
    expect(row_of(page, last).locator(".pnl > span").first).to_have_text("+$100,000.00")
    assert keys(page)[0] == last
    assert page.evaluate("([a, b]) => a === b", [mine, row_of(page, last).element_handle()])


def test_focus_stays_when_its_row_moves(page: Page, world: World) -> None:
    """A focused agent keeps the focus after an update that moves its row."""
    page.clock.install()
    open_board(page)
    last = keys(page)[-1]
    row_of(page, last).locator("a").focus()

    next(row for row in world.rows if row["stxAddress"] == last)["tradeCount"] = 100_000
    page.clock.fast_forward(31_000)

    expect(row_of(page, last).locator(".trades")).to_have_text("100,000")
    expect(row_of(page, last).locator("a")).to_be_focused()


def test_asks_only_for_what_changed(page: Page, world: World) -> None:
    """Later requests carry the ETag of the known board."""
    page.clock.install()
    open_board(page)
    with page.expect_response(lambda response: response.status == 304 and "leaderboard" in response.url):
        page.clock.fast_forward(31_000)

    assert "if-none-match" in world.asked("/api/competition/leaderboard")[-1]["headers"]


def test_does_not_ask_while_the_page_is_hidden(page: Page, world: World) -> None:
    """A hidden page makes no requests; it asks at once when it is visible again."""
    page.clock.install()
    open_board(page)
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => globalThis.away, configurable: true})")
    page.evaluate("globalThis.away = true")
    before = len(world.asked("/api/competition/leaderboard"))
    page.clock.run_for(200_000)
    assert len(world.asked("/api/competition/leaderboard")) == before

    with page.expect_response(lambda response: "leaderboard" in response.url):
        page.evaluate("globalThis.away = false; document.dispatchEvent(new Event('visibilitychange'))")


def test_unpriced_tokens_are_marked_and_explained(page: Page, world: World) -> None:
    """An agent whose figures they change has a mark, and the page explains it."""
    marked = [row for row in world.rows if row["unpricedTokens"]]
    marked[0].update(tradeCount=1_000, uncountedTradeCount=3)  # hardly any of its trades
    assert marked[0]["unpricedTokens"] == [OBSCURE]
    open_board(page)

    expect(page.locator(f"{ROWS} .unpriced:visible")).to_have_count(len(marked) - 1)
    page.get_by_text("How the figures are computed").click()
    expect(page.get_by_text("marks tokens without a known price")).to_be_visible()
    page.get_by_text("Token prices and their age").click()
    expect(page.locator("#prices li").filter(has_text="kangaroo")).to_contain_text("no price")
    expect(page.locator("#prices li").filter(has_text="aeUSDC")).to_contain_text("pegged")


HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202e&amp;\"'"


def test_names_are_text(page: Page, world: World) -> None:
    """An agent's name is shown letter by letter where it is visible; it never becomes markup."""
    hostile: Json = world.rows[0]
    hostile.update(displayName=HOSTILE, bnsName='"><svg onload=alert(3)>', pnlUsd=10**6)
    hostile.update(btcAddress="javascript:alert(4)", unpricedTokens=["<b>token</b>"])
    world.trades[hostile["stxAddress"]][0].update(token_in="<i>x</i>", txid="javascript:alert(5)")
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    open_board(page)

    seen = HOSTILE.replace("\u202e", "")  # it would reverse the text that follows
    assert names(page)[0] == seen
    row_of(page, hostile["stxAddress"]).locator("a").click()
    expect(page.locator("#panel-title")).to_have_text(seen)
    expect(page.locator(".trades li").first).to_contain_text("<i>x</i>")
    expect(page.locator(".trades li").first.locator("a")).to_have_count(0)
    assert page.locator("main img, #panel img, script:not([src])").count() == 0
    expect(state(page)).to_have_attribute("data-mood", "live")


@pytest.mark.parametrize("blank", ["   ", "\u200b\u2060\ufeff", "\u3164 \u2800", "\u200d", "\x00\x1b"])
def test_an_invisible_name_is_not_used(page: Page, world: World, blank: str) -> None:
    """The agent is called by its next name, everywhere: a link without text could not be found or clicked."""
    first, second = world.rows[:2]
    first.update(displayName=blank, bnsName="found.btc", pnlUsd=10**6)
    second.update(displayName=blank, bnsName=blank, pnlUsd=10**5)
    address = second["stxAddress"]
    short = f"{address[:6]}…{address[-5:]}"
    open_board(page)

    assert names(page)[:2] == ["found.btc", short]
    row_of(page, address).locator("a").click()
    expect(page.locator("#panel-title")).to_have_text(short)
    expect(page.locator("#panel .identity")).not_to_contain_text("Name")
