"""The leaderboard when things are missing, old, slow or broken."""

import pytest
from playwright.sync_api import Page, expect

from support.pages_driver import NONE, ROWS, open_board, press, state, stop_time
from support.pages_server import PagesServer, World, now_ms
from support.pages_world import sample_prices

BOARD = "/api/competition/leaderboard"


def test_loading_shows_a_skeleton(page: Page, world: World) -> None:
    """Before the first answer there is a skeleton; then the board takes its place."""
    answered = world.hold(BOARD)
    page.goto("/leaderboard")
    expect(page.locator(".skeletons")).to_be_visible()
    expect(state(page)).to_contain_text("Loading")

    answered.set()

    expect(page.locator(".skeletons")).to_be_hidden()
    expect(page.locator(ROWS)).to_have_count(len(world.rows))


def test_the_board_does_not_wait_for_prices(page: Page, world: World) -> None:
    """Rows are there while the prices have not been answered."""
    answered = world.hold("/api/prices")
    page.goto("/leaderboard")

    expect(page.locator(ROWS)).to_have_count(len(world.rows))
    answered.set()
    expect(page.locator("#prices li")).to_have_count(len(world.prices))


def test_no_trades_yet(page: Page, world: World) -> None:
    """An empty board explains what will appear, and fills by itself."""
    page.clock.install()
    rows, world.rows = world.rows, []
    open_board(page)
    expect(page.get_by_role("heading", name="No trades yet")).to_be_visible()

    world.rows = rows
    page.clock.fast_forward(31_000)

    expect(page.locator(ROWS)).to_have_count(len(rows))
    expect(page.get_by_role("heading", name="No trades yet")).to_be_hidden()


def test_no_prices_yet(page: Page, world: World) -> None:
    """Without prices the ranks by trades are there, and dollar values are absent rather than zero."""
    for row in world.rows:
        row.update(volumeUsd=None, pnlUsd=None, pnlPercent=None)
    world.prices, world.prices_as_of = {}, None
    open_board(page)

    expect(state(page)).to_contain_text("No prices yet")
    expect(page.locator(f"{ROWS} .pnl > span").first).to_have_text(NONE)
    expect(page.locator("#sum-volume")).to_have_text(NONE)


def test_stale_prices_are_marked(page: Page, world: World) -> None:
    """When most prices are stale the page shows that, and how old they are."""
    world.prices_as_of = now_ms() - 47 * 60_000
    world.prices = sample_prices(now_ms(), age_ms=47 * 60_000, stale=True)
    open_board(page)

    expect(state(page)).to_have_attribute("data-mood", "warn")
    expect(state(page)).to_contain_text("Prices are stale")
    expect(state(page)).to_contain_text("47 min old")


@pytest.mark.parametrize("latest", [10**18, 1_778_700_600_000_000])
def test_a_row_with_an_impossible_time_does_not_hide_the_others(page: Page, world: World, latest: int) -> None:
    """It is there without an age, and so are all rows after it; the next second changes nothing."""
    page.clock.install()
    world.rows[0]["latestTradeAt"] = latest
    open_board(page)

    expect(page.locator(ROWS)).to_have_count(len(world.rows))
    expect(page.locator(f"{ROWS} .latest").filter(has_text=NONE)).to_have_count(1)
    page.clock.fast_forward(2_000)
    expect(page.locator(f"{ROWS} .latest").filter(has_text=NONE)).to_have_count(1)


def test_an_error_shows_why_and_tries_again(page: Page, world: World) -> None:
    """A refusal is shown in the service's own words; the button asks again at once."""
    world.faults[BOARD] = (503, "The database is busy: try again in a moment.")
    page.clock.install()
    page.goto("/leaderboard")
    expect(state(page)).to_have_attribute("data-mood", "bad")
    expect(state(page)).to_contain_text("The database is busy: try again in a moment.")
    expect(page.get_by_role("heading", name="The board cannot be shown now")).to_be_visible()

    expect(page.get_by_role("button", name="Try now")).to_be_visible()
    stop_time(page)
    del world.faults[BOARD]
    press(page.locator("#retry"))
    page.clock.resume()

    expect(state(page)).to_have_attribute("data-mood", "live")
    expect(page.locator(ROWS)).to_have_count(len(world.rows))


def test_the_service_goes_away_and_comes_back(page: Page, server: PagesServer) -> None:
    """The open page keeps its board, shows that it is old, and recovers by itself."""
    page.clock.install()
    open_board(page)
    shown = page.locator(ROWS).count()

    server.stop()
    page.clock.fast_forward(31_000)
    expect(state(page)).to_contain_text("Not up to date")
    expect(state(page)).to_contain_text("cannot be reached")
    expect(page.locator(ROWS)).to_have_count(shown)

    server.start()
    page.clock.fast_forward(61_000)
    expect(state(page)).to_have_attribute("data-mood", "live")


def test_an_agent_asked_for_during_an_outage_is_shown_after_it(page: Page, server: PagesServer) -> None:
    """A click while the service is away is not lost."""
    page.clock.install()
    open_board(page)
    server.stop()
    page.locator(f"{ROWS} a").first.click()
    expect(state(page)).to_have_attribute("data-mood", "bad")

    server.start()
    page.clock.fast_forward(61_000)

    expect(page.locator("#panel .trades li").first).to_be_visible()


def test_a_wrong_clock_makes_no_wrong_ages(page: Page, world: World) -> None:
    """Ages are computed by the service's clock, not the visitor's."""
    page.clock.install(time=now_ms() / 1000 + 5 * 86_400)
    open_board(page)

    expect(state(page)).to_contain_text("prices 2 min old")


def test_nothing_jumps_while_it_loads(page: Page, world: World) -> None:
    """From the first paint to the live board with prices, nothing moves."""
    page.add_init_script(
        "globalThis.shifted = 0; new PerformanceObserver((list) => list.getEntries().forEach("
        "(entry) => { globalThis.shifted += entry.value; })).observe({type: 'layout-shift', buffered: true})"
    )
    answered = world.hold(BOARD)
    page.goto("/leaderboard")
    expect(page.locator(".skeletons")).to_be_visible()
    answered.set()
    expect(state(page)).to_have_attribute("data-mood", "live")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    assert page.evaluate("globalThis.shifted") == 0
