"""The pages' pure modules, called in the browser that runs them, and the types of what they read."""

import json
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from support.browser import watched_page
from support.pages_driver import MINUS, NONE
from support.pages_driver import ask_module as ask
from support.pages_server import PagesServer, World
from support.pages_world import Json, sample_prices
from support.statuses import HOUR, budget_status, refresh_result, run_record, scheduler_status
from tocsin.scheduler.types import Completeness, Health, Outcome, RunError, SchedulerOverview, ServiceState
from tocsin.upstream.budget import BudgetForecast
from tocsin.web.markup import ago, short_amount, signed_percent, signed_usd, span_words
from tocsin.web.pages import STATIC

ROOT = Path(__file__).parents[2]
MODULES = STATIC / "js"


@pytest.fixture(scope="module")
def page(browser: Browser, shared_server: PagesServer) -> Iterator[Page]:
    """One page for all: the modules tested here keep no state."""
    with watched_page(browser, shared_server.url) as page:
        page.goto("/console")
        yield page


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


@pytest.mark.parametrize(("ms", "shown"), [(-23 * HOUR, "just now"), (-25 * HOUR, NONE), (-1e18, NONE)])
def test_ages_of_the_future(page: Page, ms: int, shown: str) -> None:
    """Of clocks that differ by less than a day; what is later has no age."""
    assert ask(page, "format", "m.ago(a)", ms) == shown


@pytest.mark.parametrize("at", [1e18, -1e18, 8.64e15 + 1, None, "yesterday"])
@pytest.mark.parametrize("shown", ["clock", "clockSeconds", "day", "moment"])
def test_what_is_no_time_is_shown_as_none(page: Page, shown: str, at: object) -> None:
    """Nothing is thrown: one bad time must not stop what is drawn after it."""
    assert ask(page, "format", f"m.{shown}(a)", at) == NONE
    assert ask(page, "format", "m.isoTime(a)", at) is None


def test_an_item_that_cannot_be_drawn_does_not_hide_the_others(page: Page) -> None:
    """It is left out and reported, even if it was shown before."""
    drawn = ask(
        page,
        "dom",
        """await (async () => {
            const list = m.el("ul"), reported = [];
            const update = (node, item) => { if (item.bad) throw new Error(item.id); node.textContent = item.id; };
            const draw = (items) => m.keyed(list, items, (item) => item.id, () => m.el("li"), update);
            const stop = (event) => {
                event.preventDefault();
                event.stopImmediatePropagation();
                reported.push(event.message);
            };
            window.addEventListener("error", stop, true);
            draw([{ id: "a" }, { id: "b", bad: true }, { id: "c" }]);
            const first = list.textContent;
            draw([{ id: "a", bad: true }, { id: "b" }, { id: "c" }]);
            window.removeEventListener("error", stop, true);
            return [first, list.textContent, reported.length];
        })()""",
    )

    assert drawn == ["ac", "bc", 2]


WRITTEN: tuple[tuple[str, str, Callable[..., str], list[tuple[Any, str]]], ...] = (
    ("format", "ago", ago, [(0, "just now"), (44_000, "just now"), (60_000, "1 min ago")]),
    ("format", "ago", ago, [(2 * HOUR, "2 h ago"), (72 * HOUR, "3 days ago")]),
    ("format", "left", span_words, [(0, "0 min"), (3_599_999, "59 min")]),
    ("format", "left", span_words, [(55_200_000, "15 h 20 min"), (140_400_000, "1 d 15 h")]),
    ("money", "signedUsd", signed_usd, [(0.0041, "$0.00"), (5.2, "+$5.20"), (-5.2, f"{MINUS}$5.20"), (None, NONE)]),
    ("money", "signedUsd", signed_usd, [(-12_345_678, f"{MINUS}$12.35M"), (1.21e15, "+$1,210T")]),
    ("money", "signedUsd", signed_usd, [(-7.441e12, f"{MINUS}$7.441T"), (1e52, ">$999,999T")]),
    ("money", "signedPercent", signed_percent, [(20.216, "+20.22%"), (-0.004, "0.00%"), (-123.45, f"{MINUS}123.5%")]),
    ("money", "signedPercent", signed_percent, [(16_241.0, "+16,241%"), (162_410.0, "+162K%")]),
    ("money", "signedPercent", signed_percent, [(33.3e12, "+33.3T%"), (1.5e15, ">999T%"), (None, NONE)]),
)


@pytest.mark.parametrize(
    ("module", "function", "of_service", "value", "shown"),
    [(*each, value, shown) for *each, cases in WRITTEN for value, shown in cases],
)
def test_the_pages_write_as_the_service_does(
    page: Page, module: str, function: str, of_service: Callable[..., str], value: Any, shown: str
) -> None:
    """Ages and times left in their largest units; gains and losses differ by more than color, and stay short."""
    assert ask(page, module, f"m.{function}(a)", value) == shown == of_service(value)


@pytest.mark.parametrize(
    ("units", "decimals", "shown"),
    [(99, 8, "0.00000099"), (123456789012, 8, "1,234.56"), (-1234567890, 8, f"{MINUS}12.3456"), (0, 6, "0")],
)
def test_amounts_are_short(page: Page, units: int, decimals: int, shown: str) -> None:
    """The service writes the same."""
    assert ask(page, "money", "m.shortAmount(BigInt(a[0]), a[1])", [str(units), decimals]) == shown
    assert short_amount(units, decimals) == shown


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
        {"sort": sort, "dir": direction, "q": q, "page": number, "period": period, "agent": agent}
        for sort in ("agent", "trades", "volume", "pnl", "percent", "latest")
        for direction in ("asc", "desc")
        for q in ("", "a&b=c#d é")
        for number in (1, 7)
        for period in ("round", "24h", "all")
        for agent in (None, "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR")
    ]

    assert ask(page, "board-view", "a.map((view) => m.parseView(m.formatView(view)))", views) == views


@pytest.mark.parametrize(
    ("outcome", "error", "reason", "words", "mood"),
    [
        ("ok", None, None, "Swap sweep done in 210 ms (run 7): scanned 5", "live"),
        ("partial", None, "its time slice was nearly over", "Swap sweep partial (run 7): its time slice", "warn"),
        ("failed", RunError("Limited", "hiro said 429"), None, "Swap sweep failed (run 7): hiro said 429", "bad"),
        ("stopped", None, "the scheduler is paused", "Swap sweep stopped (run 7): the scheduler is", "bad"),
    ],
)
def test_outcomes_in_words(
    page: Page, outcome: Outcome, error: RunError | None, reason: str | None, words: str, mood: str
) -> None:
    """Every outcome of a refresh has a sentence with its reason, and a mood for its color."""
    record = run_record(task="sweep", outcome=outcome, error=error, reason=reason, result={"scanned": 5})
    result = refresh_result(record).to_json()

    titled = "(m.learnTitles({ tasks: { sweep: { title: 'Swap sweep' } } }), m.refreshWords('sweep', a))"
    assert ask(page, "task-words", titled, result).startswith(words)
    assert ask(page, "task-words", "m.moodOf(a.run.outcome)", result) == mood


@pytest.mark.parametrize(
    ("health", "verdict"),
    [
        (Health(True, "ready", [], []), ("live", "Ready", "Every task is on time.")),
        (Health(True, "limited", [], ["sweep is limited"]), ("warn", "Limited", "sweep is limited.")),
        (
            Health(False, "broken", ["no alarm is set", "tenero is overdue"], ["sweep is limited"]),
            ("bad", "Not working", "no alarm is set.\ntenero is overdue.\nsweep is limited."),
        ),
    ],
)
def test_the_verdict_is_what_the_service_says(page: Page, health: Health, verdict: tuple[str, str, str]) -> None:
    """The console decides nothing by itself."""
    overview = SchedulerOverview("v1", scheduler_status(), health, {}, {}).to_json()

    mood, title, text = verdict
    assert ask(page, "verdict", "m.verdictOf(a, a.status.now)", overview) == {
        "mood": mood,
        "title": title,
        "text": text,
    }


@pytest.mark.parametrize(
    ("complete", "words"),
    [
        (Completeness(7_912_345, 1, 0, None), "Proven complete up to block 7,912,345."),
        (
            Completeness(7_912_345, 1, 2, "a part of the network's list is unread"),
            "Proven complete up to block 7,912,345. Not further: a part of the network's list is unread.",
        ),
        (
            Completeness(None, None, None, "the feed is switched off"),
            "Not proven to be complete: the feed is switched off.",
        ),
    ],
)
def test_the_console_says_until_which_block_the_record_is_complete(
    page: Page, complete: Completeness, words: str
) -> None:
    assert ask(page, "task-words", "m.completeWords(a)", complete.to_json()) == words


def board_state(page: Page, health: Health, at: int, prices: Json | None = None, **board: Any) -> Any:
    """What the board says about this answer of the API."""
    shown = {"rows": [], "complete": True, "service": health.to_json(), **board}
    poll = {"error": None, "nextAt": 1}
    return ask(page, "board-state", "m.stateOf(a)", {"board": shown, "prices": prices, "poll": poll, "at": at})


@pytest.mark.parametrize(
    ("state", "mood", "title"),
    [
        ("ready", "live", "Live"),
        ("starting", "wait", "Still reading the chain"),
        ("partial", "warn", "Partly up to date"),
        ("limited", "warn", "Partly up to date"),
        ("paused", "warn", "Paused"),
        ("overdue", "warn", "Not up to date"),
        ("failing", "warn", "Not up to date"),
        ("disabled", "warn", "Not up to date"),
        ("broken", "warn", "Not up to date"),
    ],
)
def test_the_board_says_what_the_service_says(page: Page, state: ServiceState, mood: str, title: str) -> None:
    """Live means that every task is complete; otherwise one sentence says what may be missing, never why."""
    at = 1_778_700_600_000
    ready = state not in {"overdue", "failing", "disabled", "broken"}
    reasons = [] if ready else ["sweep is overdue"]
    notes = ["sweep is limited"] if ready and state != "ready" else []
    health = Health(ready, state, reasons, notes)
    shown = board_state(page, health, at, pricesAsOf=at - 60_000, sweptAt=at - 120_000)

    assert (shown["mood"], shown["title"]) == (mood, title)
    current = r"Swaps as of \d\d:\d\d, prices 1 min old\."
    late = r"Trades since \d\d:\d\d may be missing; prices are from \d\d:\d\d\. They appear by themselves\."
    assert re.fullmatch(late if mood == "warn" else current, shown["text"])


def test_the_first_sweep_shows_how_far_it_is(page: Page) -> None:
    """On a cold start nothing is called live, and the page does not claim that there are no trades."""
    at = 1_778_700_600_000
    starting, first = Health(True, "starting", [], []), {"done": 29, "total": 40}
    shown = board_state(page, starting, at, pricesAsOf=at, sweptAt=None, firstSweep=first)

    assert (shown["mood"], shown["title"]) == ("wait", "Still reading the chain")
    assert shown["text"] == "29 of 40 lists are read."


def test_a_final_board_is_not_called_stale(page: Page) -> None:
    """Its prices are those of the end, however long ago that was; a service that is not ready is shown first."""
    titles = []
    for ready in (True, False):
        health = Health(ready, "ready" if ready else "overdue", [], [])
        shown = board_state(page, health, 10**12, {}, pricesAsOf=1, sweptAt=1, final=True)
        titles.append(shown["title"])

    assert titles == ["Final", "Not up to date"]


@pytest.mark.parametrize(
    ("forecast", "expected"),
    [
        (BudgetForecast(0, 240, 3_840, None), "At this rate 3,840 by Jun 1 (240 a day)."),
        (
            BudgetForecast(0, 240, 3_840, 1_779_667_200_000),
            "At this rate the budget runs out on May 25: cadences are stretched to last until Jun 1.",
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


def test_the_types_are_up_to_date() -> None:
    """types.js is made from the service's shapes."""
    types_js: Callable[[], str] = runpy.run_path(str(ROOT / "tools" / "js_types.py"))["types_js"]

    assert (MODULES / "types.js").read_text() == types_js(), "run `make types`"


def test_the_types_are_used_and_never_loaded() -> None:
    """A comment may name a type, and the type exists; no code imports the file."""
    types = (MODULES / "types.js").read_text()
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", types, flags=re.DOTALL)
    known = set(re.findall(r"\}\} (\w+)\n", types))
    used = set()
    for module in MODULES.glob("*.js"):
        text = module.read_text()
        without_comments = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        assert "types.js" not in without_comments, module
        used |= set(re.findall(r'import\("\./types\.js"\)\.(\w+)', text))

    assert code.strip() == "export {};"
    assert len(used) >= 10
    assert used <= known
