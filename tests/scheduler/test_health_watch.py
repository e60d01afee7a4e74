"""What the watch sees, and what it cannot be made to hide."""

from typing import Any

from support.virtual_time import VirtualClock
from tocsin.errors import ObjectReset, StoreUnavailable
from tocsin.health import HealthWatch, reasons

FINE = {"enabled": True, "blind": False, "overdue": False, "lastError": None}


def status(**task: Any) -> Any:
    return {
        "nextAlarmAt": 5,
        "pausedUntil": task.pop("paused", None),
        "consecutiveFailures": {"tenero": 4},
        "tasks": {"tenero": {**FINE, **task}},
    }


def test_each_trouble_of_a_task_is_a_sentence() -> None:
    """Disabled, blind and overdue, with the setting, the error or the pause behind it."""
    error = {"class": "Limited", "message": "tenero said 429"}

    assert reasons(status()) == []
    assert reasons(status(enabled=False)) == ["tenero is disabled (TOCSIN_TENERO_ENABLED)"]
    assert reasons(status(blind=True, lastError=error)) == [
        "tenero has only failed, 4 times in a row: Limited: tenero said 429"
    ]
    assert reasons(status(overdue=True)) == ["tenero is overdue"]
    assert reasons(status(overdue=True, paused=9)) == ["tenero is overdue: the scheduler is paused"]


def test_a_disabled_task_without_a_setting_blames_none() -> None:
    """A task of one's own may be switched off where it is written."""
    found = {**status(), "tasks": {"agents": {**FINE, "enabled": False}}}

    assert reasons(found) == ["agents is disabled (in its own file)"]


class Scheduler:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def status(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


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


async def test_a_look_that_is_long_ago_shows_its_age() -> None:
    """A stuck loop looks at nothing: the age of the last look grows, whatever was seen then."""
    clock, store = VirtualClock(), Store()
    health = HealthWatch(lambda: Scheduler(status()), store, clock)  # type: ignore[arg-type]
    await health.look()
    fresh = await health.snapshot()
    await clock.sleep(60)

    assert (fresh.loop_tick_age_s, fresh.alarm_at, fresh.reasons) == (0, 5, ())
    assert (await health.snapshot()).loop_tick_age_s == 60


async def test_a_store_that_refuses_is_seen_and_seen_to_recover() -> None:
    """It is written to every few seconds, and at each look while it fails."""
    clock, store = VirtualClock(), Store()
    health = HealthWatch(lambda: Scheduler(status()), store, clock)  # type: ignore[arg-type]
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


async def test_a_scheduler_that_does_not_answer_is_a_reason() -> None:
    """An error or silence: both are said."""
    clock, scheduler = VirtualClock(), Scheduler(ObjectReset("reset"))
    health = HealthWatch(lambda: scheduler, Store(), clock)  # type: ignore[arg-type]
    await health.look()

    assert (await health.snapshot()).reasons == ("the scheduler does not answer: reset",)
