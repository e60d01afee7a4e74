"""Tests of the pages share a context, and nothing else."""

from playwright.sync_api import Page

from support.browser import SharedContext
from support.pages_driver import open_board
from support.pages_server import PagesServer

LEFT = "[localStorage.a, sessionStorage.a, document.cookie, history.length]"
LEAVE = "localStorage.a = sessionStorage.a = '1'; document.cookie = 'a=1'; history.pushState(null, '', '?a')"
STATIC = "/static/js/format.js"


def left(page: Page) -> list[object]:
    found: list[object] = page.evaluate(LEFT)
    return found


def test_a_page_finds_nothing_of_the_page_before(shared_context: SharedContext, server: PagesServer) -> None:
    """No data, no history, and no file: each is asked of the server again."""
    with shared_context.watched_page() as page:
        open_board(page)
        at_first = left(page)
        page.evaluate(LEAVE)
        assert left(page) != at_first
    with shared_context.watched_page() as page:
        open_board(page)
        assert left(page) == at_first

    asked = server.world.asked(STATIC)
    assert len(asked) == 2
    assert "if-none-match" not in asked[1]["headers"]


def test_a_stopped_clock_ends_with_its_page(shared_context: SharedContext, server: PagesServer) -> None:
    """It belongs to the context of its page, so the next page has another."""
    with shared_context.watched_page() as page:
        page.clock.install(time=0)
        open_board(page)
        assert page.evaluate("Date.now()") < 1e9
    with shared_context.watched_page() as page:
        open_board(page)
        assert page.evaluate("Date.now()") > 1e12
