"""Every state that the pages can show, and how to reach it: for audits and for screenshots."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from playwright.sync_api import Page, expect

from support.pages_driver import open_board, open_console, panel, state, verdict
from support.pages_server import World, now_ms
from support.pages_world import sample_prices
from support.statuses import MINUTE
from tocsin.board.types import BoardRound
from tocsin.scheduler.types import AuditRecord

BOARD = "/api/competition/leaderboard"


def board(page: Page, _world: World) -> None:
    open_board(page)


def board_with_everything_open(page: Page, _world: World) -> None:
    open_board(page)
    for summary in page.locator("summary").all():
        summary.click()


def board_of_round(page: Page, world: World) -> None:
    running = world.current_rounds["running"]
    starts_at, ends_at = running["starts_at"] * 1000, running["ends_at"] * 1000
    world.board_round = BoardRound(
        running["round_id"], starts_at, ends_at, final=False, min_volume_usd=50.0, min_priced_trade_count=3
    ).to_json()
    open_board(page, "?period=round")


def agent(page: Page, world: World) -> None:
    unpriced = max((row for row in world.rows if row["unpricedTokens"]), key=lambda row: row["tradeCount"])
    open_board(page, f"?agent={unpriced['stxAddress']}")
    expect(panel(page).locator(".trades li").first).to_be_visible()


def loading(page: Page, world: World) -> None:
    world.hold(BOARD)
    page.goto("/leaderboard")


def broken(page: Page, world: World) -> None:
    world.faults[BOARD] = (503, "The database is busy.")
    page.goto("/leaderboard")
    expect(state(page)).to_have_attribute("data-mood", "bad")


def stale(page: Page, world: World) -> None:
    world.prices_as_of = now_ms() - 47 * MINUTE
    world.prices = sample_prices(now_ms(), age_ms=47 * MINUTE, stale=True)
    open_board(page)
    expect(state(page)).to_contain_text("stale")


def nobody(page: Page, world: World) -> None:
    world.rows, world.prices_as_of = [], None
    open_board(page)


def gate(page: Page, _world: World) -> None:
    page.goto("/console")


def console(page: Page, world: World) -> None:
    world.emit("run.started", task="sweep", run=7, trigger="alarm", slotAt=1)
    world.emit("breaker.opened", task="sweep", failures=7)
    open_console(page, world.key)
    expect(page.locator("#lanes rect").first).to_be_visible()


def console_in_trouble(page: Page, world: World) -> None:
    world.status["tasks"]["tenero"].update(overdue=True, lastError={"class": "Limited", "message": "429", "at": 1})
    world.status["tasks"]["sweep"]["running"] = {"startedAt": now_ms(), "done": 3, "total": 9, "run": 1}
    world.status["budgets"]["hiro"]["spent"]["month"] = 149_000
    open_console(page, world.key)
    expect(verdict(page)).to_have_text("Overdue")


def console_with_partial_runs(page: Page, world: World) -> None:
    partial = {"outcome": "partial", "reason": "its time slice was nearly over", "error": None}
    for run in world.runs[:4]:
        run.update(partial)
    world.emit("run.ended", task="sweep", run=8, trigger="alarm", durationMs=825_000, result={}, **partial)
    open_console(page, world.key)
    expect(page.locator("#lanes rect[data-outcome=partial]").first).to_be_visible()
    page.get_by_text("As a table").click()


def console_paused(page: Page, world: World) -> None:
    world.status["pausedUntil"] = now_ms() + 3_600_000
    open_console(page, world.key)


def pausing(page: Page, world: World) -> None:
    open_console(page, world.key)
    page.get_by_role("button", name="Pause…").click()


State: TypeAlias = Callable[[Page, World], None]


def console_of_a_viewer(page: Page, world: World) -> None:
    """Open the audit log: an action that ended, and one whose end is unknown."""
    begun = AuditRecord("bob", "operator", "192.0.2.9", "refresh", "sweep", id="operator-2", at=now_ms())
    ended = replace(begun, id="operator-1", reason="Hiro was down", outcome="done", detail="run 7 of sweep: ok")
    world.role, world.audit = "viewer", [begun.to_json(), ended.to_json()]
    console(page, world)
    page.get_by_role("link", name="Audit log").click()
    expect(page.locator("#view tbody tr")).to_have_count(2)


def view(name: str, query: str) -> State:
    """Open a view of the console and wait until it has loaded."""

    def opened(page: Page, world: World) -> None:
        open_console(page, world.key)
        page.evaluate("address => history.pushState(null, '', address)", f"/console?view={query}")
        page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
        expect(page.locator("#view .view-body > *").nth(1)).to_be_visible()
        for summary in page.locator("#view summary").all()[:2]:
            summary.click()

    opened.__name__ = f"console_{name}"
    return opened


def console_run(page: Page, world: World) -> None:
    """Open a run that failed and refused something."""
    world.runs[0].update(
        error={"class": "Unavailable", "message": "hiro answered 503"},
        outcome="failed",
        result={"scanned": 4, "rejectionReasons": {"tx_failed": 3}},
    )
    view("run", f"run&run={world.runs[0]['id']}")(page, world)


def console_demo(page: Page, world: World) -> None:
    world.simulator = {"faults": [{"kind": "limited", "upstream": "hiro"}], "badTimes": True, "otherPlans": []}
    view("demo", "demo")(page, world)


VIEWS: list[State] = [
    console_demo,
    view("runs", "runs&period=1d"),
    console_run,
    view("days", "days&task=sweep"),
    view("refusals", "refusals"),
    view("prices", "prices"),
    view("rounds", "rounds"),
]


STATES: list[State] = [
    board, board_of_round, board_with_everything_open, agent, loading, broken, stale, nobody,
    gate, console, console_of_a_viewer, console_in_trouble, console_with_partial_runs, console_paused, pausing,
    *VIEWS,
]  # fmt: skip
