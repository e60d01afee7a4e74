"""The console's pure modules, called in the browser that runs them."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from support.browser import watched_page
from support.pages_driver import ask_module as ask
from support.pages_server import PagesServer
from support.statuses import HOUR, budget_status
from tocsin.upstream.budget import BudgetForecast


@pytest.fixture(scope="module")
def page(browser: Browser, shared_server: PagesServer) -> Iterator[Page]:
    """One page for all: the modules tested here keep no state."""
    with watched_page(browser, shared_server.url) as page:
        page.goto("/console")
        yield page


@pytest.mark.parametrize(
    ("forecast", "expected"),
    [
        (BudgetForecast(0, 240, 3_840, None), "At this rate 3,840 by 1 Jun (240 a day)."),
        (
            BudgetForecast(0, 240, 3_840, 1_779_667_200_000),
            "At this rate the budget runs out on 25 May: cadences are stretched to last until 1 Jun.",
        ),
        (None, "The forecast needs an hour of calls."),
    ],
)
def test_a_month_ends_as_the_service_forecasts(page: Page, forecast: BudgetForecast | None, expected: str) -> None:
    """The page calculates no forecast of its own."""
    month_ends_at = 1_780_272_000_000  # 2026-06-01
    budget = budget_status(minute=(0, None), month=(45, 150_000), month_ends_at=month_ends_at, forecast=forecast)

    assert ask(page, "budgets", "m.forecastWords(a[0])", [budget.to_json()]) == expected
    assert ask(page, "budgets", "m.passedOf(...a)", [month_ends_at, month_ends_at - 31 * 12 * HOUR]) == 0.5
    left = "Tasks may still use 134,960; 14,995 are kept for requests. "
    assert ask(page, "budgets", "m.leftWords(a[0])", [budget.to_json()]) == left


def test_the_parts_of_a_chart(page: Page) -> None:
    """Its range is never empty, its summary is of the values, and its line has the gaps of its points."""
    ranges = ask(page, "plot", "a.map(([values, zero]) => m.rangeOf(values, zero))", [
        [[3, 9], True], [[3, 9], False], [[0, 0], True], [[5], False],
    ])  # fmt: skip
    assert ranges[:3] == [{"low": 0, "high": 9}, {"low": 3, "high": 9}, {"low": 0, "high": 1}]
    assert ranges[3]["low"] < 5 < ranges[3]["high"]
    assert ask(page, "plot", "m.summaryOf(a)", [40, 1, 3, 2]) == {"median": 2, "highest": 40}

    points = [{"at": at, "value": value} for at, value in ((1, 5), (2, 6), (3, None), (4, 7), (20, 8), (21, 9))]
    pieces = ask(page, "plot", "m.piecesOf(a, 10).map((piece) => piece.map(({ at }) => at))", points)
    assert pieces == [[1, 2], [4], [20, 21]]


def test_the_address_of_a_view(page: Page) -> None:
    """Empty values are left out, and odd ones are escaped."""
    links = ask(page, "views", "a.map(([view, params]) => m.linkTo(view, params))", [
        ["runs", {"task": "sweep", "outcome": ""}], ["run", {"run": 7}], ["refusals", {"code": "a&b", "sender": None}],
    ])  # fmt: skip
    assert links == ["?view=runs&task=sweep", "?view=run&run=7", "?view=refusals&code=a%26b"]
