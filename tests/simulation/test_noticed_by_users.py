"""Operators and readers of the simulation notice defects: each defect breaks the promise with its name."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from simulation.history import run_history
from simulation.plan import Event, Plan, draw_plan
from tocsin.commands import rows as import_agents
from tocsin.commands.rows import TableCounts
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.history import EventLog
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.types import RunFilter
from tocsin.swaps import explain
from tocsin.swaps.rules import Check, checks


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (None, None),
        (claims_left_out, "imports"),
        (checks_ignored, "explains"),
        (page_again, "pages"),
        (events_again, "events"),
        (two_instances, "settings"),
    ],
)
def test_it_notices_a_broken_promise_to_users(
    broken: Callable[[pytest.MonkeyPatch], None] | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each defect breaks the promise with its name; without one nothing is broken."""
    if broken is not None:
        broken(monkeypatch)
    report = run_history(busy_plan())

    assert {each.name for each in report.violations[:1]} == ({expected} if expected else set())
