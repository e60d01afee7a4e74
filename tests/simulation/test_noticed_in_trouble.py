"""The simulation notices defects while stores and upstreams have faults: each defect breaks its promise."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from simulation.history import run_history
from simulation.plan import Event, Plan, draw_plan
from stacks_simulator.hiro_hooks import HOOK_UUID
from tocsin.fetch import FetchResponse
from tocsin.scheduler import history as kept_runs
from tocsin.scheduler.history import EntryReader
from tocsin.swaps import chainhook as hook_watch
from tocsin.swaps.feed import Feed
from tocsin.upstream import limiter as budget_limiter
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.limiter import apply_answer
from tocsin.upstream.windows import Month

HOUR_MS = 3_600_000


def troubled_plan() -> Plan:
    """Return half a day: entries are damaged, a hook is deleted, others use up the month, many ask at once."""
    plan = draw_plan(1, 0.5)
    damage = {"what": "state", "count": 12, "whole": True, "down_s": 70.0}
    events = (
        Event(4_000.0, "damage", 1, damage),
        Event(5_000.0, "damage", 2, {**damage, "what": "run"}),
        Event(6_000.0, "hook", 3, {"state": "deleted"}),
        Event(8_000.0, "crowd", 4, {"then": "look", "count": 6, "share": 1.0}),
        Event(12_000.0, "hook", 8, {"state": "disabled"}),
        Event(17_000.0, "hook", 5, {"state": "streaming"}),
        Event(20_000.0, "account", 6, {"upstream": "tenero", "what": "others", "share": 1.0}),
        Event(24_000.0, "refresh", 7, {"task": "tenero", "times": 1}),
        *(Event(26_000.0 + 300 * n, "refresh", n, {"task": "tenero", "times": 1}) for n in range(9)),
    )
    settings = replace(
        plan.world.settings,
        hiro_api_key="a-key-for-hiro",
        feed_enabled=True,
        feed_cadence=2 * HOUR_MS,
        tenero_cadence=HOUR_MS,
        tenero_plan_month=50_000,
        sweep_cadence=2 * HOUR_MS,
        chainhook_id=f"/chainhooks/me/{HOOK_UUID}",
        chainhook_reenable=False,
        breaker_failures=0,
    )
    world = replace(plan.world, settings=settings, earlier_service="today", tenero_month=None)
    return replace(plan, world=world, events=events)


def not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable value is replaced by its default without a report."""
    real = EntryReader.read

    def read(self: EntryReader, key: str, stored: Any, parse: Any, default: Any) -> Any:
        try:
            return parse(stored)
        except Exception:  # noqa: BLE001 - any: the defect is that nothing else happens
            return default if key != "scheduler" else real(self, key, stored, parse, default)

    monkeypatch.setattr(EntryReader, "read", read)


def runs_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run is ever too old."""
    monkeypatch.setattr(kept_runs, "_is_due", lambda *_: False)


def lines_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are removed without their log lines."""
    monkeypatch.setattr(kept_runs, "log_key", lambda number: f"another:{number}")


def asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream whose month is used up is called whenever somebody wants a call."""
    monkeypatch.setattr(Month, "_probe_wait_ms", lambda _: 0)


def call_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that has ended counts as under way."""

    def applied(budget: Any, *arguments: Any, **named: Any) -> Any:
        changed, events = apply_answer(budget, *arguments, **named)
        return replace(changed, in_flight=budget.in_flight), events

    monkeypatch.setattr(budget_limiter, "apply_answer", applied)


def hook_always_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disabled hook is not reported as a problem."""
    monkeypatch.setattr(hook_watch, "problem_of", lambda _: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (None, None),
        (not_reported, "unreadable"),
        (runs_kept_for_ever, "run-history"),
        (lines_left, "run-history"),
        (asked_at_once, "month"),
        (call_never_ends, "permits"),
        (hook_always_fine, "outcomes"),
    ],
)
def test_it_notices_a_broken_promise_in_trouble(
    broken: Callable[[pytest.MonkeyPatch], None] | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each defect breaks the promise with its name; without one nothing is broken."""
    if broken is not None:
        broken(monkeypatch)
    report = run_history(troubled_plan())

    assert {each.name for each in report.violations[:1]} == ({expected} if expected else set())
    assert expected or report.happened["entry unreadable"] >= 12


def plan_with_wrong_lists() -> Plan:
    """Return a day whose network's list has wrong pages, stands still, and keeps its ETag."""
    plan = draw_plan(1, 1.0)
    page = {"times": 1, "transactions": 130}
    events = (
        Event(9_000.0, "wrong_page", 1, {**page, "fault": "own_cursor"}),
        Event(13_000.0, "wrong_page", 2, {**page, "fault": "empty_page"}),
        Event(16_000.0, "stopped_list", 3, {"for_s": 25_000.0}),
        Event(50_000.0, "stuck_etag", 4, {"for_s": 25_000.0}),
    )
    settings = replace(
        plan.world.settings,
        feed_enabled=True,
        feed_cadence=HOUR_MS // 2,
        tenero_cadence=2 * HOUR_MS,
        sweep_cadence=8 * HOUR_MS,
        chainhook_id=None,
        chainhook_reenable=False,
        hiro_plan_month=150_000,
    )
    world = replace(plan.world, settings=settings, swaps_per_hour=6.0, hiro_month=None, tenero_month=None)
    return replace(plan, world=world, events=events)


def age_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that stands still counts as complete."""
    monkeypatch.setattr(Feed, "_is_old", lambda _self, _block_s: False)


def etag_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 304 counts as a look that shows nothing new, however old the last page is."""
    real = HiroClient.network_transactions
    etags: dict[str, Any] = {}

    async def conditional(self: HiroClient, session: Any, cursor: str | None = None) -> Any:
        if cursor is not None:
            return await real(self, session, cursor)
        fetch = self.client._fetch

        async def with_etag(url: str, *, headers: Any, **options: Any) -> FetchResponse:
            known = {"if-none-match": etags["etag"]} if etags else {}
            answer = await fetch(url, headers={**headers, **known}, **options)
            if answer.status == 200:
                etags.update(etag=answer.headers.get("etag", ""), page=answer.body)
            return FetchResponse(200, answer.headers, etags["page"]) if answer.status == 304 else answer

        monkeypatch.setattr(self.client, "_fetch", with_etag)
        try:
            return await real(self, session)
        finally:
            monkeypatch.setattr(self.client, "_fetch", fetch)

    monkeypatch.setattr(HiroClient, "network_transactions", conditional)
    age_ignored(monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "left_out", "expected"),
    [(None, (), None), (age_ignored, ("stuck_etag",), "found"), (etag_believed, ("stopped_list",), "found")],
)
def test_it_notices_that_a_wrong_list_is_believed(
    broken: Callable[[pytest.MonkeyPatch], None] | None,
    left_out: tuple[str, ...],
    expected: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Swaps stay missing while everything seems fine."""
    if broken is not None:
        broken(monkeypatch)
    plan = plan_with_wrong_lists()
    report = run_history(plan.without({event for event in plan.events if event.kind in left_out}))

    assert {each.name for each in report.violations[:1]} == ({expected} if expected else set())
    assert expected or report.longest_missing["ready"] <= 2
