"""What the health watch sees, and what a stuck loop cannot hide."""

import asyncio
import sqlite3
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ObjectReset, StoreUnavailable
from holdfast_testing.virtual_time import START_MS, VirtualClock
from support.scheduler import MINUTE, Job, scheduler
from support.statuses import scheduler_status
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.health import TaskFacts, task_health
from tocsin.scheduler.types import Status
from tocsin.scheduler.watch import HealthWatch

FINE = TaskFacts(
    name="tenero",
    enabled=True,
    cadence_ms=300_000,
    complete_ago_ms=4_000,
    armed_ago_ms=9_000_000,
    failures=0,
    failing_after=3,
    last_outcome="ok",
    last_reason=None,
    paused_until=None,
)
NOON = 1_778_673_600_000


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("ok", "tenero completed a run 4s ago", False)),
        ({"complete_ago_ms": None, "armed_ago_ms": 5}, ("starting", "tenero has not completed a run yet", False)),
        (
            {"last_outcome": "partial", "last_reason": "39 of 40 contracts' lists were read"},
            ("partial", "the last run of tenero was not complete: 39 of 40 contracts' lists were read", False),
        ),
        (
            {"last_outcome": "failed", "failures": 2, "last_reason": "TaskFailed: nothing priced"},
            ("partial", "the last run of tenero was not complete: TaskFailed: nothing priced", False),
        ),
        (
            {"last_outcome": "limited", "last_reason": "tenero: all callers wait after a 429"},
            ("limited", "tenero is limited: tenero: all callers wait after a 429", False),
        ),
        ({"paused_until": NOON}, ("paused", "tenero is paused until 2026-05-13 12:00 UTC", False)),
        (
            {"complete_ago_ms": 600_001},
            ("overdue", "tenero is overdue with no complete run for 10m at a cadence of 5 minutes", True),
        ),
        ({"complete_ago_ms": 600_000}, ("ok", "tenero completed a run 10m ago", False)),
        (
            {"complete_ago_ms": 660_000, "last_outcome": "limited", "last_reason": "no calls are left"},
            (
                "overdue",
                "tenero is overdue with no complete run for 11m at a cadence of 5 minutes: no calls are left",
                True,
            ),
        ),
        (
            {"complete_ago_ms": 660_000, "paused_until": NOON},
            (
                "overdue",
                "tenero is overdue with no complete run for 11m at a cadence of 5 minutes: the scheduler is paused",
                True,
            ),
        ),
        (
            {"complete_ago_ms": None, "armed_ago_ms": 600_001},
            ("overdue", "tenero is overdue with no complete run yet at a cadence of 5 minutes", True),
        ),
        (
            {
                "failures": 3,
                "complete_ago_ms": 300_000,
                "last_outcome": "failed",
                "last_reason": "Limited: tenero said 429",
            },
            ("failing", "tenero has failed 3 times in a row: Limited: tenero said 429", True),
        ),
        (  # reruns within seconds do not make it failing
            {"failures": 9, "complete_ago_ms": 299_999, "last_outcome": "limited", "last_reason": "429"},
            ("limited", "tenero is limited: 429", False),
        ),
        (  # nor a task that runs every minute, within two
            {"failures": 3, "complete_ago_ms": 119_999, "cadence_ms": 60_000, "last_outcome": "failed"},
            ("partial", "the last run of tenero was not complete", False),
        ),
        (
            {"failures": 3, "complete_ago_ms": 120_000, "cadence_ms": 60_000, "last_outcome": "failed"},
            ("failing", "tenero has failed 3 times in a row", True),
        ),
        ({"enabled": False}, ("disabled", "tenero is disabled (TOCSIN_TENERO_ENABLED)", True)),
        (
            {"enabled": False, "name": "agents"},  # a task of one's own, switched off in its file
            ("disabled", "agents is disabled (in its own file)", True),
        ),
    ],
)
def test_a_task_has_one_condition_and_a_sentence(changes: dict[str, Any], expected: tuple[str, str, bool]) -> None:
    """The worst condition, with its cause; it may make the service not ready."""
    assert astuple(task_health(replace(FINE, **changes))) == expected


class SchedulerStub:
    """A stub with one answer or one error; None: it never answers."""

    def __init__(self, answer: Status | Exception | None) -> None:
        self.answer = answer
        self.armed = 0

    async def arm(self) -> int:
        if isinstance(self.answer, Exception):
            raise self.answer
        self.armed += 1
        return 5

    async def status(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            await asyncio.Event().wait()
            raise AssertionError("not reached")
        return self.answer.to_json()


class Store:
    """A KV that a test can break."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.written = 0

    async def put(self, _key: str, _value: str, *, expiration_ttl: int | None = None) -> None:
        del expiration_ttl
        if self.error is not None:
            raise self.error
        self.written += 1


def watch(answer: Status | Exception | None, store: Store, clock: VirtualClock) -> HealthWatch:
    return HealthWatch(lambda: SchedulerClient(SchedulerStub(answer)), store, clock)  # type: ignore[arg-type]


async def test_a_look_that_is_long_ago_shows_its_age() -> None:
    """A stuck loop checks nothing: the age of the last check grows, whatever it saw."""
    clock = VirtualClock()
    health = watch(scheduler_status(), Store(), clock)
    await health.look()
    fresh = await health.snapshot()
    await clock.sleep(60)

    assert (fresh.loop_tick_age_s, fresh.scheduler_error) == (0, None)
    assert fresh.status is not None
    assert fresh.status.next_alarm_at == START_MS + 60_000
    assert (await health.snapshot()).loop_tick_age_s == 60


async def test_a_store_that_refuses_is_seen_and_seen_to_recover() -> None:
    """It is written to every few seconds, and at each check while it fails."""
    clock, store = VirtualClock(), Store()
    health = watch(scheduler_status(), store, clock)
    await health.look()
    await health.look()
    assert store.written == 1
    store.error = StoreUnavailable("KV.put: disk full")
    await clock.sleep(5)
    await health.look()
    assert (await health.snapshot()).store_error == "KV.put: disk full"
    store.error = None
    await health.look()

    assert (await health.snapshot()).store_error is None


async def test_a_scheduler_that_does_not_answer_is_a_problem() -> None:
    """An error or silence: each has its sentence."""
    clock = VirtualClock()
    failed, silent = watch(ObjectReset("reset"), Store(), clock), watch(None, Store(), clock)
    await failed.look()
    await silent.look()

    assert (await failed.snapshot()).scheduler_error == "the scheduler does not answer: reset"
    assert (await silent.snapshot()).scheduler_error == "the scheduler did not answer within 2 s"


async def test_the_alarm_is_set_again_when_the_store_recovers() -> None:
    """Once, and not before the scheduler takes it."""
    clock, store, stub = VirtualClock(), Store(), SchedulerStub(scheduler_status())
    health = HealthWatch(lambda: SchedulerClient(stub), store, clock)  # type: ignore[arg-type]
    await health.look()
    store.error = StoreUnavailable("KV.put: disk full")
    await clock.sleep(5)
    await health.look()
    store.error, stub.answer = None, ObjectReset("reset")
    await health.look()
    armed_while_reset, stub.answer = stub.armed, scheduler_status()
    for _ in range(3):
        await clock.sleep(5)
        await health.look()

    assert (armed_while_reset, stub.armed) == (0, 1)


@pytest.mark.slow
async def test_work_goes_on_soon_after_a_full_disk(tmp_path: Path) -> None:
    """The retries of the alarm have become rare by then, and the watch does not wait for the next one."""
    prices, store = Job("tenero", MINUTE, slice_ms=MINUTE // 2), Store()

    def full(step: str, _connection: sqlite3.Connection) -> None:
        if step == "before commit":
            raise sqlite3.OperationalError("database or disk is full")

    async with scheduler(tmp_path, prices) as made:
        health = HealthWatch(made.client, store, made.clock)  # type: ignore[arg-type]
        watching = asyncio.create_task(health.watch())
        await asyncio.sleep(90)
        free = made.runtime.store.crash_point
        made.runtime.store.crash_point = full
        store.error = StoreUnavailable("KV.put: database or disk is full")
        await asyncio.sleep(400)
        made.runtime.store.crash_point = free
        store.error, freed_at = None, made.clock.now()
        await asyncio.sleep(300)
        watching.cancel()

    first = next(at for at in prices.started if at >= freed_at)
    assert first - freed_at < 5_000


@dataclass(frozen=True)
class Problem:
    """What is wrong with a file."""

    sentence: str
    loses_writes: bool


async def test_a_lost_file_is_the_error_of_the_store() -> None:
    """While writes would be lost, nothing is tried. A lost lock file is a problem, but work continues."""
    clock, store, stub = VirtualClock(), Store(), SchedulerStub(scheduler_status())
    problems: list[Problem | None] = [
        None,
        Problem("db.sqlite was deleted", loses_writes=True),
        Problem("tocsin.lock was deleted", loses_writes=False),
        None,
    ]
    seen = []
    health = HealthWatch(lambda: SchedulerClient(stub), store, clock, lambda: problems[0])  # type: ignore[arg-type]
    while problems:
        await clock.sleep(5)
        await health.look()
        snapshot = await health.snapshot()
        seen.append((snapshot.store_error, snapshot.file_problem, store.written, stub.armed))
        problems.pop(0)

    assert seen == [
        (None, None, 1, 0),
        ("db.sqlite was deleted", None, 1, 0),
        (None, "tocsin.lock was deleted", 2, 1),
        (None, None, 3, 1),
    ]


async def test_the_store_is_written_every_five_seconds_and_looked_at_every_second() -> None:
    clock, store, ages = VirtualClock(), Store(), []
    await clock.sleep(100)
    health = HealthWatch(
        lambda: SchedulerClient(SchedulerStub(scheduler_status())),
        store,  # type: ignore[arg-type]
        clock,
        on_look=lambda seen: ages.append((clock.now() - START_MS - 100_000, seen.loop_tick_age_s, store.written)),
    )
    watching = asyncio.create_task(health.watch())
    await clock.sleep(5.5)
    watching.cancel()

    assert ages == [(0, 0, 1), (1_000, 0, 1), (2_000, 0, 1), (3_000, 0, 1), (4_000, 0, 1), (5_000, 0, 2)]


@pytest.mark.parametrize(("active", "next_alarm_at", "armed"), [(True, None, 1), (False, None, 0), (True, START_MS, 0)])
async def test_an_alarm_that_is_gone_is_set_again(active: bool, next_alarm_at: int | None, armed: int) -> None:
    """Unless this scheduler is not the active one."""
    stub = SchedulerStub(scheduler_status(active=active, next_alarm_at=next_alarm_at))
    health = HealthWatch(lambda: SchedulerClient(stub), Store(), VirtualClock())  # type: ignore[arg-type]
    await health.look()

    assert stub.armed == armed


async def test_before_the_first_look_the_scheduler_is_a_problem() -> None:
    health = watch(scheduler_status(), Store(), VirtualClock())

    assert health.seen().scheduler_error == "the scheduler has not been checked yet"
    assert (health.seen().store_error, health.seen().file_problem) == (None, None)


async def test_a_scheduler_that_does_not_take_the_alarm_does_not_stop_the_watch() -> None:
    """It is called again at the next successful write."""

    class Silent(SchedulerStub):
        """Never answers when it is armed."""

        async def arm(self) -> int:
            self.armed += 1
            await asyncio.Event().wait()
            return 5

    clock, store, stub = VirtualClock(), Store(), Silent(scheduler_status())
    health = HealthWatch(lambda: SchedulerClient(stub), store, clock)  # type: ignore[arg-type]
    store.error = StoreUnavailable("KV.put: disk full")
    await health.look()
    store.error = None
    for _ in range(2):
        await health.look()
        await clock.sleep(5)

    assert stub.armed == 2
    assert health.seen().status is not None
