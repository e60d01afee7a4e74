"""Every state that the service can be in, as the scheduler's stored entries, and what it then reports."""

import re
from dataclasses import dataclass, field, replace
from typing import Any

from support.asgi import Answer
from support.statuses import DAY, MINUTE
from tocsin.app import tasks
from tocsin.scheduler.types import ServiceState
from tocsin.settings import Settings
from tocsin.upstream.budget import Budget, CallRate, Quota, RateMark

TASKS = tuple(task.name for task in tasks(Settings()))
NOW = 2_000_000_760_000  # 2033-05-18 03:46 UTC: no slot is due, and on workerd no alarm


@dataclass(frozen=True)
class Case:
    """Changes to the entries of a healthy service, and the expected report."""

    state: ServiceState
    ready: bool
    said: str = ""  # a part of the first reason or note
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)  # by entry: a task, or "scheduler"


def entries_of(case: Case, now: int = NOW) -> dict[str, Any]:
    """Return the entries that the object has stored."""
    own = {"armedAt": now - DAY, **case.changes.get("scheduler", {})}
    well = {"lastSlotAt": now - MINUTE, "lastSuccessAt": now - MINUTE, "lastOutcome": "ok"}
    well_now = {**well, "lastSlotAt": now}
    tasks = {**dict.fromkeys(TASKS, well_now), "tenero": well, "sweep": well}
    entries = {f"task:{name}": {**task, **case.changes.get(name, {})} for name, task in tasks.items()}
    return {"scheduler": own, **entries}


def spent_budget(now: int) -> Any:
    """The entry of a budget of 50,000 calls a month, of which 1,789 are spent: 82 since a day ago."""
    budget = Budget.begin(Quota(minute=100, month=50_000), now)
    month = replace(budget.month, spent=1_789)
    return replace(budget, month=month, call_rate=CallRate((RateMark(now - DAY, 82),))).to_json()


CASES = {
    "ready": Case("ready", True),
    "starting": Case(
        "starting",
        True,
        "Swap sweep: no complete run yet",
        {"scheduler": {"armedAt": NOW - MINUTE}, "sweep": {"lastSuccessAt": None, "lastOutcome": None}},
    ),
    "partial": Case(
        "partial",
        True,
        "Swap sweep not complete: 39 of 40 contracts' lists were read",
        {"sweep": {"lastOutcome": "partial", "lastReason": "39 of 40 contracts' lists were read"}},
    ),
    "limited": Case(
        "limited",
        True,
        "Swap sweep limited: hiro: calls wait after a 429",
        {"sweep": {"lastOutcome": "limited", "lastReason": "hiro: calls wait after a 429"}},
    ),
    "paused": Case(
        "paused",
        True,
        "Token prices paused until 2033-05-18 04:46 UTC",
        {"scheduler": {"pausedUntil": NOW + 60 * MINUTE}},
    ),
    "overdue": Case(
        "overdue",
        False,
        "Swap sweep overdue, no complete run for 31m (every 15m)",
        {"sweep": {"lastSuccessAt": NOW - 31 * MINUTE}},
    ),
    "a feed that is late, but not for as long as a sweep may be": Case(
        "partial",
        True,
        "Transaction feed not complete: the network's list is read up to block 7",
        {
            "feed": {
                "lastSuccessAt": NOW - 29 * MINUTE,
                "lastOutcome": "partial",
                "lastReason": "the network's list is read up to block 7, 300 blocks behind",
            }
        },
    ),
    "a feed that is late for too long": Case(
        "overdue",
        False,
        "Transaction feed overdue, no complete run for 31m (every 1m)",
        {"feed": {"lastSuccessAt": NOW - 31 * MINUTE}},
    ),
    "paused for too long": Case(
        "overdue",
        False,
        "Token prices overdue, no complete run for 11m (every 5m): it is paused",
        {"scheduler": {"pausedUntil": NOW + 60 * MINUTE}, "tenero": {"lastSuccessAt": NOW - 11 * MINUTE}},
    ),
    "never complete": Case(
        "overdue", False, "Swap sweep overdue, no complete run yet (every 15m)", {"sweep": {"lastSuccessAt": None}}
    ),
    "a success in the future counts as now": Case("ready", True, "", {"sweep": {"lastSuccessAt": NOW + DAY}}),
    "failing": Case(
        "failing",
        False,
        "Swap sweep failed 3 times: hiro said 429",
        {
            "sweep": {
                "consecutiveFailures": 3,
                "lastOutcome": "limited",
                "lastReason": "hiro said 429",
                "lastSuccessAt": NOW - 6 * MINUTE,
            }
        },
    ),
}


def check(case: Case, readyz: Answer, overview: Any, board: Any, metrics: str) -> None:
    """Check that all four report what the table says."""
    health = {name: readyz.json()[name] for name in ("ready", "state", "reasons", "notes")}
    assert (health["state"], health["ready"]) == (case.state, case.ready)
    assert readyz.status == (200 if case.ready else 503)
    assert [*health["reasons"], *health["notes"], ""][0].startswith(case.said)
    assert overview["health"] == health
    assert board["service"] == health
    states = dict(re.findall(r'tocsin_state\{state="(\w+)"\} ([01])', metrics))
    assert {state for state, is_on in states.items() if is_on == "1"} == {case.state}
    assert f"tocsin_ready {int(case.ready)}\n" in metrics
