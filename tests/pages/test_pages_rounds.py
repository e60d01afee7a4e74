"""Rounds on the pages: a countdown and the last winner for visitors, what waits for operators."""

import re

import pytest
from playwright.sync_api import Page, expect

from support.pages_driver import ask_module, open_board, open_console
from support.pages_rounds import SENTENCE, no_rounds
from support.pages_server import World
from tocsin.rounds.words import title_of


def test_the_banner_of_the_board_tells_about_the_rounds(page: Page, world: World) -> None:
    """The round that runs with its end and its prizes, the one whose result is awaited, and the last winner."""
    open_board(page)

    lines = page.locator("#round p")
    expect(lines.nth(0)).to_have_text(
        re.compile(r"Week 3 · ends [A-Z][a-z]+day \d\d:\d\d UTC, in 5 d 23 h · 100,000 sats in prizes")
    )
    expect(lines.nth(1)).to_have_text("Week 2 is over; its result is awaited")
    expect(lines.nth(2)).to_have_text(SENTENCE)
    links = page.locator("#round a")
    assert [link.get_attribute("href") for link in links.all()] == [
        "/rounds/week-3",
        "/rounds/week-2",
        "/rounds/week-1",
    ]


@pytest.mark.parametrize(
    ("round_id", "title"),
    [("week-2-2026-11-13", "Week 2"), ("week-12", "Week 12"), ("half-hour-1", "half-hour-1"), ("Final", "Final")],
)
def test_a_round_has_a_title(page: Page, round_id: str, title: str) -> None:
    """The same on every page: that of the scripts is that of the service."""
    page.goto("/leaderboard")

    assert ask_module(page, "round-line", "m.titleOf(a)", round_id) == title == title_of(round_id)


def test_without_rounds_the_board_says_nothing_about_them(page: Page, world: World) -> None:
    world.current_rounds = no_rounds()
    open_board(page)

    expect(page.locator("#round")).to_have_text("")


def test_the_console_says_what_a_round_waits_for(page: Page, world: World) -> None:
    """What one that runs has to win, and how many discrepancies a result has."""
    open_console(page, world.key)
    page.get_by_role("link", name="Rounds").click()

    rounds = page.locator("#view tbody tr")
    expect(rounds.nth(0)).to_contain_text(re.compile(r"Week 3\s*runs, ends\s*in 5 d 23 h\s*1\s*100,000 sats to win"))
    expect(page.locator("#view .note")).to_have_text("A new round starts every 7 days.")
    expect(rounds.nth(1)).to_contain_text("closed")
    expect(rounds.nth(1)).to_contain_text("waits: transactions that wait to be verified: 2")
    expect(rounds.nth(2)).to_contain_text("2 discrepancies since its result")
