"""Rounds on the pages: a countdown and the last winner for visitors, what waits for operators."""

import re

from playwright.sync_api import Page, expect

from support.pages_driver import open_board, open_console
from support.pages_rounds import no_rounds
from support.pages_server import World


def test_the_board_counts_down_to_the_end_of_the_round(page: Page, world: World) -> None:
    """It names the round that runs, the one whose result is awaited, and the last winner, whatever its name is."""
    open_board(page)

    line = page.locator("#round")
    expect(line).to_contain_text(re.compile(r"Round week-3 ends in 14[34]:\d\d:\d\d"))
    expect(line).to_contain_text("Round week-2 is over; its result is awaited")
    expect(line).to_contain_text("week-1 was won by <b>Sly</b> Fox")


def test_without_rounds_the_board_says_nothing_about_them(page: Page, world: World) -> None:
    world.current_rounds = no_rounds()
    open_board(page)

    expect(page.locator("#round")).to_have_text("")


def test_the_console_says_what_a_round_waits_for(page: Page, world: World) -> None:
    """And how many discrepancies a result has."""
    open_console(page, world.key)
    page.get_by_role("link", name="Rounds").click()

    rounds = page.locator("#view tbody tr")
    expect(rounds.nth(0)).to_contain_text(re.compile(r"week-3\s*open\s*14[34]:\d\d:\d\d"))
    expect(rounds.nth(1)).to_contain_text("closed")
    expect(rounds.nth(1)).to_contain_text("waits: transactions that wait to be verified: 2")
    expect(rounds.nth(2)).to_contain_text("2 discrepancies since its result")
