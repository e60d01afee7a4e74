"""What the watch sees, and what a stuck loop cannot hide."""

import asyncio
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.scheduler import MINUTE, Job, scheduler
from support.virtual_time import VirtualClock
from tocsin.errors import ObjectReset, StoreUnavailable
from tocsin.scheduler.health_watch import HealthWatch
from tocsin.scheduler.readiness import task_problems
from tocsin.scheduler.scheduler_client import SchedulerClient
from tocsin.shapes.scheduler import LastError, Status, TaskStatus

FINE = TaskStatus(
    enabled=True,
    upstream="tenero",
    cadence_ms=300_000,
    effective_cadence_ms=300_000,
    cadence_reason="as configured: the plan allows it",
    cadence_why="",
    slice_ms=240_000,
    next_due_at=5,
    running=None,
    last_success_at=4,
    last_error=None,
    missed_slots=0,
    run_counts={"ok": 1},
    overdue=False,
    failing=False,
)


def status(task: TaskStatus = FINE, *, name: str = "tenero", paused_until: int | None = None) -> Status:
    return Status(
        name="v1",
        active=True,
        now=4,
        next_alarm_at=5,
        paused_until=paused_until,
        pause_max_ms=1,
        consecutive_failures={name: 4},
        next_run_after={name: None},
        tasks={name: task},
        budgets={},
        last_run_at={name: None},
        last_result={name: None},
    )


def test_each_problem_of_a_task_is_a_sentence() -> None:
    """Disabled, failing and overdue, with the setting, the error or the pause behind it."""
    failing = replace(FINE, failing=True, last_error=LastError(3, "Limited", "tenero said 429"))
    overdue = replace(FINE, overdue=True)

    assert task_problems(status()) == ()
    assert task_problems(status(replace(FINE, enabled=False))) == (
        "tenero is disabled (TOCSIN_TENERO_ENABLED)",
    )
    assert task_problems(status(failing)) == (
        "tenero is failing, 4 times in a row: Limited: tenero said 429",
    )
    assert task_problems(status(overdue)) == ("tenero is overdue",)
    assert task_problems(status(overdue, paused_until=9)) == ("tenero is overdue: the scheduler is paused",)


def test_a_disabled_task_without_a_setting_names_no_setting() -> None:
    """A task of one's own may be switched off in its file."""
    disabled = status(replace(FINE, enabled=False), name="agents")

    assert task_problems(disabled) == ("agents is disabled (in its own file)",)


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
    """A stuck loop looks at nothing: the age of the last look grows, whatever was seen then."""
    clock = VirtualClock()
    health = watch(status(), Store(), clock)
    await health.look()
    fresh = await health.snapshot()
    await clock.sleep(60)

    assert (fresh.loop_tick_age_s, fresh.alarm_at, fresh.problems) == (0, 5, ())
    assert (await health.snapshot()).loop_tick_age_s == 60


async def test_a_store_that_refuses_is_seen_and_seen_to_recover() -> None:
    """It is written to every few seconds, and at each look while it fails."""
    clock, store = VirtualClock(), Store()
    health = watch(status(), store, clock)
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

    assert (await failed.snapshot()).problems == ("the scheduler does not answer: reset",)
    assert (await silent.snapshot()).problems == ("the scheduler does not answer within 2 s",)


async def test_the_alarm_is_set_again_when_the_store_recovers() -> None:
    """Once, and not before the scheduler takes it."""
    clock, store, stub = VirtualClock(), Store(), SchedulerStub(status())
    health = HealthWatch(lambda: SchedulerClient(stub), store, clock)  # type: ignore[arg-type]
    await health.look()
    store.error = StoreUnavailable("KV.put: disk full")
    await clock.sleep(5)
    await health.look()
    store.error, stub.answer = None, ObjectReset("reset")
    await health.look()
    armed_while_reset, stub.answer = stub.armed, status()
    for _ in range(3):
        await clock.sleep(5)
        await health.look()

    assert (armed_while_reset, stub.armed) == (0, 1)


async def test_work_goes_on_soon_after_a_full_disk(tmp_path: Path) -> None:
    """The retries of the alarm have become rare meanwhile, and nobody waits for the next one."""
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
    """While writes would be lost, nothing is tried. A lost lock file is a problem, and work goes on."""
    clock, store, stub = VirtualClock(), Store(), SchedulerStub(status())
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
        seen.append((snapshot.store_error, snapshot.problems, store.written, stub.armed))
        problems.pop(0)

    assert seen == [
        (None, (), 1, 0),
        ("db.sqlite was deleted", (), 1, 0),
        (None, ("tocsin.lock was deleted",), 2, 1),
        (None, (), 3, 1),
    ]
