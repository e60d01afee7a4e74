"""The leaderboard of a period, small curves, changes of rank, rules and past rounds."""

import re

import pytest
from playwright.sync_api import Page, expect

from support.browser import PHONE, audit
from support.page_states import board_of_round
from support.pages_driver import MINUS, NONE, ROWS, names, open_board, panel, row_of, state
from support.pages_server import World

BOARD = "/api/competition/leaderboard"


def of_day(world: World) -> str:
    """Another order in the last 24 hours: the last one is the best; one is not known."""
    rows = [{**row, "pnlUsd": 1.0 * place} for place, row in enumerate(world.rows)]
    rows[0].update(pnlUsd=None, pnlPercent=None)
    world.period_rows["24h"] = rows
    return str(rows[-1]["displayName"] or rows[-1]["bnsName"])


def test_a_period_is_chosen_by_keyboard_and_kept_in_the_link(page: Page, world: World) -> None:
    """Its figures come from the service; unknown is not zero; Back returns to the previous period."""
    best = of_day(world)
    open_board(page)
    everything = names(page)
    page.get_by_role("searchbox").focus()
    page.keyboard.press("Tab")
    expect(page.get_by_role("radio", name="All")).to_be_focused()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")

    expect(page.get_by_role("radio", name="24 h")).to_be_checked()
    expect(page).to_have_url(re.compile(r"\?period=24h$"))
    expect(page.locator(f"{ROWS} td.agent a").first).to_have_text(best)
    expect(page.locator(f"{ROWS} .pnl > span:first-child").last).to_have_text(NONE)
    expect(page.locator("#found")).to_contain_text("since")
    for _ in range(3):
        page.go_back()
    expect(page.get_by_role("radio", name="All")).to_be_checked()
    expect(page.locator(f"{ROWS} td.agent a").first).to_have_text(everything[0])


def test_a_link_opens_a_period_on_a_phone(page: Page, world: World) -> None:
    """It asks for that period only; the control fits, and can be touched."""
    best = of_day(world)
    page.set_viewport_size(PHONE)
    open_board(page, "?period=24h")

    expect(page.locator(f"{ROWS} td.agent a").first).to_have_text(best)
    assert all("period=24h" in request["url"] for request in world.asked(BOARD))
    page.get_by_role("radio", name="30 d").check()
    expect(page).to_have_url(re.compile(r"\?period=30d$"))
    box = page.locator(".periods").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_board_of_a_round(page: Page, world: World) -> None:
    """The running one shows since when; one with a result is final; no round is not an empty competition."""
    board_of_round(page, world)
    expect(page.locator("#found")).to_contain_text("since")
    expect(state(page)).to_contain_text("Live")

    assert world.board_round is not None
    world.board_round["final"] = True
    page.reload()
    expect(state(page)).to_contain_text("This is the result of round week-3.")

    world.board_round, world.period_rows["round"] = None, []
    page.reload()
    expect(page.get_by_role("heading", name="No round yet")).to_be_visible()


def test_another_period_is_not_shown_with_old_figures(page: Page, world: World) -> None:
    """Until the answer arrives there is a skeleton, not the figures of the previous period."""
    of_day(world)
    open_board(page)
    answered = world.hold(BOARD)
    page.get_by_role("radio", name="24 h").check()
    expect(page.locator(".skeletons")).to_be_visible()
    answered.set()
    expect(page.locator(".skeletons")).to_be_hidden()


def test_curves_and_changes_of_rank_are_told_in_words(page: Page, world: World) -> None:
    """A curve has a description and gaps; an arrow also has a description. In a period no rank changed."""
    row = world.rows[0]
    row.update(sparkline=[None] * 20 + [1.0, 2.5, None, None, 4.0, 3.0, -2.0, 0.0, 12.5], rankChange=3, pnlUsd=1e6)
    world.rows[1].update(rankChange=-2, sparkline=[])
    open_board(page)
    mine = row_of(page, row["stxAddress"])

    label = f"P&L in 7 days: +$1.00 to +$12.50, between {MINUS}$2.00 and +$12.50"
    curve = mine.get_by_role("img", name=label)
    expect(curve).to_be_visible()
    drawn = curve.locator("path").get_attribute("d") or ""
    assert (drawn.count("M"), drawn.count("L")) == (2, 5)
    assert mine.locator(".rank").inner_text().split("\n") == ["1", "▲3", ", up 3 in 24 hours"]
    other = row_of(page, world.rows[1]["stxAddress"])
    expect(other.locator(".rank .sr")).to_have_text(", down 2 in 24 hours")
    expect(other.get_by_role("img")).to_have_count(0)

    page.get_by_role("radio", name="7 d").check()
    expect(mine.locator(".rank small")).to_be_empty()


def test_how_to_take_part(page: Page, world: World) -> None:
    """The steps are those of /llms.txt. They are text."""
    open_board(page)
    page.get_by_text("How to take part").click()

    expect(page.locator("#rules .steps li")).to_have_text(["Register the wallet.", "Swap <b>one</b> token."])
    assert audit(page) == []


@pytest.mark.parametrize("width", [1500, 1920, 2560])
def test_on_a_wide_screen_the_agent_stands_beside_the_board(page: Page, world: World, width: int) -> None:
    """Neither covers the other, and both can be used; Escape closes it, and the focus returns."""
    page.emulate_media(reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 1000})
    open_board(page)
    first = page.locator(f"{ROWS} a").first
    first.click()
    expect(page.locator("#panel .trades li").first).to_be_visible()
    board, beside = page.locator("#board-top").bounding_box(), page.locator("#panel").bounding_box()
    assert board is not None
    assert beside is not None
    assert board["x"] + board["width"] <= beside["x"]
    assert audit(page) == []

    page.locator(f"{ROWS} a").nth(1).click()  # nothing is in its way
    expect(page.locator("#panel-title")).to_have_text(names(page)[1])
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_very_wide_screen_is_used(page: Page, world: World) -> None:
    """What is around the board stands beside it; nothing is cut off; light and dark are readable."""
    page.emulate_media(reduced_motion="reduce")
    page.set_viewport_size({"width": 2560, "height": 1300})
    open_board(page)
    board, foot = page.locator("#board-top").bounding_box(), page.locator(".foot").bounding_box()
    assert board is not None
    assert foot is not None
    assert board["width"] > 1700
    assert foot["x"] >= board["x"] + board["width"]
    assert audit(page) == []
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    assert audit(page, "color-contrast") == []


def test_digits_stay_in_their_column(page: Page, world: World) -> None:
    """Figures of any size are no wider than their cell, and end where the others end."""
    sizes = (2_132_456_789.12, -999_999.99, 9_999_999.99, 123_456.78, 1e14, 0.01, 9_999.99, 99_999.99)
    for row, size in zip(world.rows, sizes, strict=False):
        row.update(pnlUsd=size, volumeUsd=abs(size), pnlPercent=size / 3, pnlAtTradeUsd=-size, tradeCount=1_234_567)
    open_board(page)

    outside = page.evaluate(
        """() => [...document.querySelectorAll("#rows td.num")].filter((cell) => {
             const range = document.createRange();
             range.selectNodeContents(cell);
             const [text, room] = [range.getBoundingClientRect(), cell.getBoundingClientRect()];
             return text.left < room.left || text.right > room.right - 11;  // the padding
           }).map((cell) => cell.innerText)"""
    )
    assert outside == []
    texts = page.locator(f"{ROWS} .pnl > span:first-child").all_inner_texts()
    assert texts[:2] == ["+$100T", "+$2.132B"]


def test_tokens_have_symbols_and_badges(page: Page, world: World) -> None:
    """By their contract: another token with the same asset name does not pass for it."""
    fake = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.sbtc-token::sbtc-token"
    world.prices[fake] = next(iter(world.prices.values()))
    open_board(page)
    page.get_by_text("Token prices and their age").click()

    shown = page.locator("#prices .token").all_inner_texts()
    assert {"STX", "sBTC", "stSTX", "aeUSDC", "WELSH", "LEO", "sbtc-token", "kangaroo"} == set(shown)
    hues = page.locator("#prices .coin").evaluate_all("all => all.map((one) => one.style.getPropertyValue('--hue'))")
    assert len(set(hues)) >= 7


def test_the_panel_says_which_period_its_figures_are_of(page: Page, world: World) -> None:
    """Those of the period, then all trades; for an agent without any in it the page says so."""
    of_day(world)
    address = world.rows[2]["stxAddress"]
    world.period_rows["round"] = []
    open_board(page, f"?period=24h&agent={address}")
    shown = panel(page)
    expect(shown).to_contain_text("These figures are those of the last 24 hours")
    expect(shown.locator(".figures")).to_contain_text("+$2.00")

    open_board(page, f"?period=round&agent={address}")
    expect(panel(page)).to_contain_text("This address is not on the board of the round.")
