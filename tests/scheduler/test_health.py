"""How each task is, and the service: its worst part decides, and each bound holds to the millisecond."""

from dataclasses import replace
from typing import Any

import pytest

from support.statuses import scheduler_status, task_status
from tocsin.scheduler.health import (
    HealthSnapshot,
    TaskFacts,
    health_of,
    is_failing,
    is_overdue,
    process_problems,
    task_health,
)
from tocsin.scheduler.types import Health

NOON = 1_778_673_600_000
GOOD = HealthSnapshot(0.1, None, scheduler_status(next_alarm_at=NOON))
FACTS = TaskFacts("tenero", "Token prices", True, 60_000, None, 0, 3, "failed", None, None)
FINE = TaskFacts(
    name="tenero",
    title="Token prices",
    enabled=True,
    cadence_ms=300_000,
    complete_ago_ms=4_000,
    armed_ago_ms=9_000_000,
    failures=0,
    last_outcome="ok",
    last_reason=None,
    paused_until=None,
)


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({"armed_ago_ms": 119_999}, False),
        ({"armed_ago_ms": 120_000}, True),
        ({"armed_ago_ms": 120_000, "failures": 2}, False),
        ({"armed_ago_ms": None}, True),
        ({"armed_ago_ms": 120_000, "complete_ago_ms": 119_999}, False),
        ({"armed_ago_ms": 0, "complete_ago_ms": 120_000}, True),
        ({"cadence_ms": 3_600_000, "armed_ago_ms": 299_999}, False),
        ({"cadence_ms": 3_600_000, "armed_ago_ms": 300_000}, True),
    ],
)
def test_a_task_fails_after_as_many_runs_or_five_minutes(changes: dict[str, Any], failing: bool) -> None:
    assert is_failing(replace(FACTS, **changes)) is failing


@pytest.mark.parametrize(
    ("changes", "overdue"),
    [
        ({"armed_ago_ms": 120_000}, False),
        ({"armed_ago_ms": 120_001}, True),
        ({"armed_ago_ms": None}, False),
        ({"armed_ago_ms": 500_000, "complete_ago_ms": 120_000}, False),
        ({"armed_ago_ms": 0, "complete_ago_ms": 120_001}, True),
        ({"armed_ago_ms": 200_000, "overdue_after_ms": 200_000}, False),
        ({"armed_ago_ms": 200_001, "overdue_after_ms": 200_000}, True),
        ({"armed_ago_ms": 120_001, "overdue_after_ms": 10}, True),
    ],
)
def test_a_task_is_overdue_after_two_cadences_or_its_own_bound(changes: dict[str, Any], overdue: bool) -> None:
    assert is_overdue(replace(FACTS, **changes)) is overdue


@pytest.mark.parametrize(
    ("changes", "late_ms", "problems"),
    [
        ({}, 60_000, []),
        ({}, 60_001, ["the alarm is 60 s late"]),
        ({}, 6_000_400, ["the alarm is 6000 s late"]),
        ({}, -900_000, []),
        ({"loop_tick_age_s": 5.0}, 0, []),
        ({"loop_tick_age_s": 5.6}, 0, ["the event loop has been stuck for 6 s"]),
        ({"loop_tick_age_s": None}, 0, []),
        ({"store_error": "disk full"}, 0, ["the store cannot be written: disk full"]),
        ({"file_problem": "a lost lock"}, 0, ["a lost lock"]),
        ({"status": None}, 0, ["the scheduler does not answer"]),
        ({"status": None, "scheduler_error": "reset"}, 0, ["reset"]),
        ({"status": None, "store_error": "full"}, 0, ["the store cannot be written: full"]),
        (  # one cause
            {"status": None, "store_error": "full", "scheduler_error": "reset"},
            0,
            ["the store cannot be written: full"],
        ),
        (  # on Cloudflare the store that is missing is not the object's own
            {"status": None, "store_error": "full", "scheduler_error": "reset", "loop_tick_age_s": None},
            0,
            ["the store cannot be written: full", "reset"],
        ),
        ({"status": scheduler_status(next_alarm_at=None)}, 0, ["no alarm is set: no task will run"]),
    ],
)
def test_each_problem_of_the_process_has_a_sentence(changes: dict[str, Any], late_ms: int, problems: list[str]) -> None:
    assert process_problems(replace(GOOD, **changes), NOON + late_ms) == problems


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (["ok", "ok"], Health(True, "ready", [], [])),
        (["starting", "ok"], Health(True, "starting", [], ["0 starting"])),
        (["starting", "partial"], Health(True, "partial", [], ["0 starting", "1 partial"])),
        (["partial", "limited"], Health(True, "limited", [], ["0 partial", "1 limited"])),
        (["limited", "paused"], Health(True, "paused", [], ["0 limited", "1 paused"])),
        (["paused", "overdue"], Health(False, "overdue", ["1 overdue"], ["0 paused"])),
        (["overdue", "failing"], Health(False, "failing", ["0 overdue", "1 failing"], [])),
        (["failing", "disabled"], Health(False, "disabled", ["0 failing", "1 disabled"], [])),
    ],
)
def test_the_worst_task_decides_the_state(conditions: list[Any], expected: Health) -> None:
    """What makes the service not ready is a reason, the rest are notes."""

    def sentence(number: int) -> str:
        return f"{number} {conditions[number]}"

    serious = {"disabled", "failing", "overdue"}
    tasks = {
        f"t{number}": task_status(
            condition=each, sentence=sentence(number), problem=sentence(number) if each in serious else None
        )
        for number, each in enumerate(conditions)
    }
    snapshot = replace(GOOD, status=scheduler_status(next_alarm_at=NOON, tasks=tasks))
    assert health_of(snapshot, NOON) == expected


def test_a_broken_process_is_worse_than_any_task() -> None:
    failing = task_status(condition="failing", sentence="t is failing", problem="t is failing")
    ill = replace(GOOD, store_error="full", status=scheduler_status(next_alarm_at=NOON, tasks={"t": failing}))

    assert health_of(ill, NOON) == Health(False, "broken", ["the store cannot be written: full", "t is failing"], [])
    assert health_of(replace(GOOD, status=None), NOON) == Health(False, "broken", ["the scheduler does not answer"], [])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("ok", "Token prices completed a run 4s ago", False)),
        ({"complete_ago_ms": None, "armed_ago_ms": 5}, ("starting", "Token prices: no complete run yet", False)),
        (
            {"last_outcome": "partial", "last_reason": "39 of 40 contracts' lists were read"},
            ("partial", "Token prices not complete: 39 of 40 contracts' lists were read", False),
        ),
        (
            {"last_outcome": "failed", "failures": 2, "last_reason": "nothing priced"},
            ("partial", "Token prices not complete: nothing priced", False),
        ),
        (
            {"last_outcome": "limited", "last_reason": "tenero: calls wait after a 429"},
            ("limited", "Token prices limited: tenero: calls wait after a 429", False),
        ),
        ({"paused_until": NOON}, ("paused", "Token prices paused until 2026-05-13 12:00 UTC", False)),
        ({"complete_ago_ms": 600_001}, ("overdue", "Token prices overdue, no complete run for 10m (every 5m)", True)),
        ({"complete_ago_ms": 600_000}, ("ok", "Token prices completed a run 10m ago", False)),
        (
            {"complete_ago_ms": 660_000, "last_outcome": "limited", "last_reason": "no calls are left"},
            ("overdue", "Token prices overdue, no complete run for 11m (every 5m): no calls are left", True),
        ),
        (
            {"complete_ago_ms": 660_000, "paused_until": NOON},
            ("overdue", "Token prices overdue, no complete run for 11m (every 5m): it is paused", True),
        ),
        (
            {"complete_ago_ms": None, "armed_ago_ms": 600_001},
            ("overdue", "Token prices overdue, no complete run yet (every 5m)", True),
        ),
        (
            {"failures": 3, "complete_ago_ms": 300_000, "last_outcome": "failed", "last_reason": "tenero said 429"},
            ("failing", "Token prices failed 3 times: tenero said 429", True),
        ),
        (  # reruns within seconds do not make it failing
            {"failures": 9, "complete_ago_ms": 299_999, "last_outcome": "limited", "last_reason": "429"},
            ("limited", "Token prices limited: 429", False),
        ),
        (  # nor a task that runs every minute, within two
            {"failures": 3, "complete_ago_ms": 119_999, "cadence_ms": 60_000, "last_outcome": "failed"},
            ("partial", "Token prices not complete", False),
        ),
        (
            {"failures": 3, "complete_ago_ms": 120_000, "cadence_ms": 60_000, "last_outcome": "failed"},
            ("failing", "Token prices failed 3 times", True),
        ),
        (
            {"last_outcome": "failed", "failures": 3, "last_reason": "tenero answered 503", "next_at": NOON + 480_000}
            | {"complete_ago_ms": 300_000},
            ("failing", "Token prices failed 3 times: tenero answered 503; next run 12:08 UTC", True),
        ),
        (
            {"complete_ago_ms": 660_000, "cadence_ms": 72_888, "last_outcome": "limited", "last_reason": "429"}
            | {"next_at": NOON + 43_200_000},
            (
                "overdue",
                "Token prices overdue, no complete run for 11m (every 1m 12s): 429; next run 2026-05-14 00:00 UTC",
                True,
            ),
        ),
        ({"last_outcome": "limited", "next_at": NOON}, ("limited", "Token prices limited", False)),
        ({"enabled": False}, ("disabled", "Token prices switched off (TOCSIN_TENERO_ENABLED)", True)),
        (
            {"enabled": False, "name": "agents"},  # a task of one's own, switched off in its file
            ("disabled", "Token prices switched off (in its own file)", True),
        ),
    ],
)
def test_a_task_has_one_condition_and_a_sentence(changes: dict[str, Any], expected: tuple[str, str, bool]) -> None:
    """The worst condition, with its cause; it may make the service not ready."""
    health = task_health(replace(FINE, **changes), NOON)

    assert (health.condition, health.sentence, health.problem == health.sentence) == expected
