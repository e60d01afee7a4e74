"""The simulation notices defects: each breaks the promise with its name, and without one nothing is broken."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import pytest

from holdfast.local.storage import ObjectStorage
from holdfast.types import Database
from simulation.history import run_history
from simulation.plan import Event, Plan, draw_plan
from stacks_simulator.hiro_hooks import HOOK_UUID
from tocsin.commands import rows as import_agents
from tocsin.commands.rows import TableCounts
from tocsin.fetch import FetchResponse
from tocsin.rounds import capture
from tocsin.rounds import steps as advance
from tocsin.rounds import task as run_rounds
from tocsin.rounds.capture import closing_prices
from tocsin.rounds.round import RoundPrice, RoundRow, due_step
from tocsin.scheduler import health as service_health
from tocsin.scheduler import history as kept_runs
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.history import EntryReader, EventLog
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.slots import Decision
from tocsin.scheduler.types import RunFilter
from tocsin.swaps import chainhook as hook_watch
from tocsin.swaps import explain
from tocsin.swaps.feed import Feed
from tocsin.swaps.rules import Check, checks
from tocsin.upstream import limiter as budget_limiter
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.limiter import apply_answer
from tocsin.upstream.windows import Month

Defect: TypeAlias = Callable[[pytest.MonkeyPatch], None]

HOUR_MS = 3_600_000


def quiet_plan(days: float = 0.5) -> Plan:
    """A history in which nothing goes wrong."""
    plan = draw_plan(1, days)
    return replace(plan, events=())


def plan_with_rounds() -> Plan:
    """A quiet day with a round every four hours."""
    plan = quiet_plan(1.0)
    hour_ms = 3_600_000
    settings = replace(
        plan.world.settings,
        feed_enabled=True,
        feed_cadence=2 * hour_ms,
        tenero_cadence=hour_ms,
        sweep_cadence=8 * hour_ms,
    )
    rule = {"period_s": 14_400, "grace_s": 900, "begun": 0.3, "prefix": "week"}
    world = replace(plan.world, settings=settings, swaps_per_hour=6.0)
    return replace(plan, world=world, events=(Event(900.0, "round_rule", 0, rule),))


def busy_plan() -> Plan:
    """Return half a day without faults, with busy operators and readers."""
    plan = draw_plan(1, 0.5)
    events = [
        Event(3_600.0 + 600 * number, "follow", number, {"what": what})
        for number, what in enumerate(("news", "events", "pages", "allowlist", "instance") * 4)
    ]
    events += [
        Event(3_700.0 + 600 * number, "explain", number, {"saved": number % 2 == 0, "odd": False})
        for number in range(30)
    ]
    events.append(Event(4_000.0, "rehearse", 1, {"form": "results", "mistakes": 5}))
    world = replace(plan.world, swaps_per_hour=6.0)
    return replace(plan, world=world, events=tuple(sorted(events, key=lambda event: event.at_s)))


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


def plan_with_wrong_lists(left_out: str = "") -> Plan:
    """Return a day whose network's list has wrong pages, stands still, and keeps its ETag; one kind may be left out."""
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
    return replace(plan, world=world, events=tuple(event for event in events if event.kind != left_out))


def without_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The object sometimes deletes its alarm instead of setting it."""
    real = SchedulerDO._set_alarm
    calls = iter(range(10**9))

    def set_alarm(self: SchedulerDO, decision: Decision) -> None:
        if next(calls) % 20 == 19:
            self.ctx.storage.delete_alarm()
        else:
            real(self, decision)

    monkeypatch.setattr(SchedulerDO, "_set_alarm", set_alarm)


def late_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alarm rings a minute late."""
    real = ObjectStorage.set_alarm
    monkeypatch.setattr(ObjectStorage, "set_alarm", lambda self, at: real(self, at + 60_000))


def always_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task is ever reported as overdue or failing, and none runs to its end."""
    monkeypatch.setattr(service_health, "is_overdue", lambda _: False)
    monkeypatch.setattr(service_health, "is_failing", lambda _: False)

    async def never(_self: SchedulerDO, _run: Any) -> None:
        await asyncio.sleep(10**9)

    monkeypatch.setattr(SchedulerDO, "_execute", never)


def never_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task is reported as overdue."""
    monkeypatch.setattr(service_health, "is_overdue", lambda _: True)


def closed_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is closed at its end, before the grace."""

    def early(round_: RoundRow, now: int) -> Any:
        return due_step(replace(round_, grace_ends_at=round_.ends_at), now)

    monkeypatch.setattr(run_rounds, "due_step", early)


def captured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round does not wait until the chain was read."""
    monkeypatch.setattr(advance, "incomplete_because", lambda _rules, _record: None)


def later_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is valued at prices from before its end."""

    async def prices(db: Database, token_ids: Collection[str], ends_at: int) -> list[RoundPrice]:
        return await closing_prices(db, token_ids, ends_at - 3_600)

    monkeypatch.setattr(capture, "closing_prices", prices)


def woken_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody wakes the task at the end of a round."""
    monkeypatch.setattr(run_rounds, "next_look", lambda *_: None)


def claims_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import writes agents without their claims."""
    real = import_agents._write

    def write(connection: Any, table: Any) -> TableCounts:
        return real(connection, table) if table == "agents" else TableCounts(0, 0, 0)

    monkeypatch.setattr(import_agents, "_write", write)


def checks_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """An explanation shows the checks, and none of them fails."""

    def passed(*arguments: Any) -> list[Check]:
        return [Check(check.name, check.detail) for check in checks(*arguments)]

    monkeypatch.setattr(explain, "checks", passed)


def page_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second page of runs begins where the first one did."""
    real = SchedulerClient.runs

    async def runs(self: SchedulerClient, query: RunFilter) -> Any:
        return await real(self, RunFilter(query.task, query.limit))

    monkeypatch.setattr(SchedulerClient, "runs", runs)


def events_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks for newer events gets all."""
    monkeypatch.setattr(EventLog, "_since", lambda self, _seq: list(self._kept))


def two_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every instance considers itself the active one."""
    monkeypatch.setattr(SchedulerDO, "_is_drained", lambda _: False)


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
    ("plan", "defect", "expected"),
    [
        (quiet_plan, without_alarm, "armed"),
        (quiet_plan, late_slots, "slots"),
        (quiet_plan, always_ready, "readiness"),
        (quiet_plan, never_ready, "readiness"),
        (plan_with_rounds, closed_early, "round-on-time"),
        (plan_with_rounds, woken_never, "round-on-time"),
        (plan_with_rounds, captured_at_once, "round-complete"),
        (plan_with_rounds, later_prices, "round-prices"),
        (busy_plan, claims_left_out, "imports"),
        (busy_plan, checks_ignored, "explains"),
        (busy_plan, page_again, "pages"),
        (busy_plan, events_again, "events"),
        (busy_plan, two_instances, "settings"),
        (troubled_plan, not_reported, "unreadable"),
        (troubled_plan, runs_kept_for_ever, "run-history"),
        (troubled_plan, lines_left, "run-history"),
        (troubled_plan, asked_at_once, "month"),
        (troubled_plan, call_never_ends, "permits"),
        (troubled_plan, hook_always_fine, "outcomes"),
        (partial(plan_with_wrong_lists, "stuck_etag"), age_ignored, "found"),
        (partial(plan_with_wrong_lists, "stopped_list"), etag_believed, "found"),
    ],
)
def test_a_defect_breaks_its_promise(
    plan: Callable[[], Plan], defect: Defect, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check with this name is the first to find it."""
    defect(monkeypatch)

    assert run_history(plan()).violations[0].name == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "happened"),
    [
        (quiet_plan, {}),
        (plan_with_rounds, {"round finalized": 4}),
        (busy_plan, {}),
        (troubled_plan, {"entry unreadable": 12}),
        (plan_with_wrong_lists, {}),
    ],
)
def test_without_a_defect_nothing_is_broken(plan: Callable[[], Plan], happened: dict[str, int]) -> None:
    """Rounds end, damaged entries are noticed, and no swap stays missing while the service is ready."""
    report = run_history(plan())

    assert report.violations == []
    assert {what: count for what, count in happened.items() if report.happened[what] < count} == {}
    assert report.longest_missing["ready"] <= 2
