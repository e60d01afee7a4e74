"""The pages' pure modules, asked in the browser that runs them."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from support.browser import watched_page
from support.pages_driver import MINUS, NONE
from support.pages_server import PagesServer, World
from support.pages_world import HOUR, Json, sample_prices

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def page(browser: Browser, shared_server: PagesServer) -> Iterator[Page]:
    """One page for all: the modules asked here keep no state."""
    with watched_page(browser, shared_server.url) as page:
        page.goto("/console")
        yield page


def ask(page: Page, module: str, expression: str, argument: Any = None) -> Any:
    """Evaluate an expression over a module's exports (`m`) and an argument (`a`)."""
    return page.evaluate(
        f"async (a) => {{ const m = await import('/static/js/{module}.js'); return {expression}; }}", argument
    )


@pytest.mark.parametrize(
    ("units", "decimals", "shown"),
    [
        ("0", 6, "0"),
        ("1", 6, "0.000001"),
        ("-1500000", 6, f"{MINUS}1.5"),
        ("1234567000000", 6, "1,234,567"),
        ("123456789012345678901234567890", 8, "1,234,567,890,123,456,789,012.3456789"),
        ("17", 0, "17"),
    ],
)
def test_amounts_are_exact(page: Page, units: str, decimals: int, shown: str) -> None:
    """An amount in base units is shown to the last digit, whatever its size."""
    assert ask(page, "money", "m.amount(BigInt(a[0]), a[1])", [units, decimals]) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "just now"),
        (44_000, "just now"),
        (60_000, "1 min ago"),
        (2 * HOUR, "2 h ago"),
        (72 * HOUR, "3 days ago"),
    ],
)
def test_ages(page: Page, ms: int, shown: str) -> None:
    """Ages are told in their largest unit."""
    assert ask(page, "format", "m.ago(a)", ms) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0041, "$0.00"),
        (5.2, "+$5.20"),
        (-5.2, f"{MINUS}$5.20"),
        (None, NONE),
        (-12_345_678, f"{MINUS}$12.35M"),
    ],
)
def test_money_has_its_sign(page: Page, value: float | None, shown: str) -> None:
    """A gain and a loss differ by more than colour; what rounds to nothing has no sign."""
    assert ask(page, "money", "m.signedUsd(a)", value) == shown


def test_tokens_add_up_to_the_boards_figures(page: Page) -> None:
    """For every sample agent, P&L per token sums to the P&L that the board shows for the same trades."""
    world = World.sample(40)
    prices = sample_prices(0)
    sums = ask(
        page,
        "agent-trades",
        """a.trades.map((trades) => m.tokenFlows(trades, a.prices).tokens)
             .map((tokens) => tokens.reduce((sum, one) => sum + (one.netUsd ?? 0), 0))""",
        {"trades": [world.trades[row["stxAddress"]] for row in world.rows], "prices": prices},
    )

    assert sums == pytest.approx([row["pnlUsd"] for row in world.rows], abs=0.01)


def test_events_survive_any_cut(page: Page) -> None:
    """However the stream is cut, the same events come out; comments and other fields are skipped."""
    wanted: list[Json] = [{"seq": 1, "text": "a\n\nb é"}, {"seq": 2, "event": "run.ended"}, {"seq": 3}]
    text = ": hello\n\n" + "".join(
        f"id: {one['seq']}\r\nevent: x\r\ndata: {json.dumps(one)}\r\n\r\n" if one["seq"] == 2
        else f"id: {one['seq']}\ndata: {json.dumps(one)}\n\n"
        for one in wanted
    )  # fmt: skip
    random = Random(5)
    cuts = [sorted(random.sample(range(len(text)), 6)) for _ in range(200)]
    found = ask(
        page,
        "event-stream",
        """a.cuts.map((cuts) => {
             let rest = ""; const events = [];
             [0, ...cuts].forEach((from, i) => {
               const taken = m.takeEvents(rest + a.text.slice(from, cuts[i]));
               rest = taken.rest; events.push(...taken.events);
             });
             return events;
           })""",
        {"cuts": cuts, "text": text},
    )

    assert all(events == wanted for events in found)


def test_a_view_and_its_link_are_one(page: Page) -> None:
    """Every view is read back from the link that it makes."""
    views = [
        {"sort": sort, "dir": direction, "q": q, "page": number, "agent": agent}
        for sort in ("agent", "trades", "volume", "pnl", "percent", "latest")
        for direction in ("asc", "desc")
        for q in ("", "a&b=c#d é")
        for number in (1, 7)
        for agent in (None, "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR")
    ]

    assert ask(page, "board-view", "a.map((view) => m.parseView(m.formatView(view)))", views) == views


@pytest.mark.parametrize(
    ("spent", "limit", "at_end", "runs_out"),
    [
        (1000, 10_000, 2000, False),
        (6000, 10_000, 12_000, True),
        (0, 10_000, 0, False),
        (50, None, 100, False),
    ],
)
def test_a_month_is_projected_at_its_pace(
    page: Page, spent: int, limit: int | None, at_end: int, runs_out: bool
) -> None:
    """Half-way through a month twice the spent is expected; a limit below that is reached before the end."""
    budget = {
        "monthEndsAt": 1_780_272_000_000,  # 2026-06-01
        "limits": {"month": limit},
        "spent": {"month": spent},
    }
    half_way = 1_780_272_000_000 - 31 * 12 * HOUR
    found = ask(page, "budgets", "m.projection(a[0], a[1])", [budget, half_way])

    assert found["atEnd"] == at_end
    assert (found["runsOutAt"] is not None) == runs_out
    if runs_out:
        assert half_way < found["runsOutAt"] < budget["monthEndsAt"]
