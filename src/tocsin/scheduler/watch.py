"""Monitors one process: checks the scheduler, the store and its files every second, and keeps the results in memory.

`/readyz` reads only these results and the age of the last check, so a stuck event loop cannot hide behind an old, good
result. When the store becomes writable again, the alarm is set again, because retries may have moved it minutes ahead.
It is also set if there is none.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from holdfast.errors import HoldfastError, StoreError
from holdfast.types import KV, Clock
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.health import HealthSnapshot
from tocsin.scheduler.types import Measures, Status

CHECK_EVERY_S = 1.0
WRITE_EVERY_S = 5.0
STATUS_WAIT_S = 2.0
WRITE_KEY = "tocsin:alive"


class FileProblem(Protocol):
    """A problem with a file of the store; writes may be lost."""

    @property
    def sentence(self) -> str: ...
    @property
    def loses_writes(self) -> bool: ...


def why_refused(problem: FileProblem | None) -> str | None:
    """Return why nothing may be written, if a file with data was lost."""
    return problem.sentence if problem is not None and problem.loses_writes else None


class HealthWatch:
    """Monitors the scheduler and the store, for `/readyz`. Each check calls `check_files` first and `on_check` last."""

    def __init__(
        self,
        scheduler: Callable[[], SchedulerClient],
        kv: KV,
        clock: Clock,
        check_files: Callable[[], FileProblem | None] = lambda: None,
        on_check: Callable[[HealthSnapshot], None] = lambda _: None,
    ) -> None:
        self._scheduler = scheduler
        self._kv = kv
        self._clock = clock
        self._check_files = check_files
        self._on_check = on_check
        self._checked_at = clock.monotonic()
        self._wrote_at: float | None = None
        self._seen = HealthSnapshot(None, None, None, "the scheduler has not been checked yet")
        self._must_arm = False  # because the store could not be written

    async def snapshot(self) -> HealthSnapshot:
        """The results of the last check, without waiting."""
        return self.seen()

    def seen(self) -> HealthSnapshot:
        return replace(self._seen, loop_tick_age_s=self._clock.monotonic() - self._checked_at)

    async def watch(self) -> None:
        while True:
            await self.check()
            await self._clock.sleep(CHECK_EVERY_S)

    async def check(self) -> None:
        problem = self._check_files()
        if problem is not None and problem.loses_writes:
            # Writes would be lost, so do not ask the scheduler: it would only return another error.
            self._seen, self._must_arm = HealthSnapshot(None, problem.sentence, None), True
        else:
            store_error = await self._try_to_write()
            status, measures, error = await ask_scheduler(self._scheduler)
            if status is not None and status.active and status.next_alarm_at is None:
                await self._arm()  # its storage was wiped: `/readyz` reports it until the next check
            file_problem = None if problem is None else problem.sentence
            self._seen = HealthSnapshot(None, store_error, status, error, file_problem, measures)
        self._checked_at = self._clock.monotonic()
        self._on_check(self.seen())

    async def _try_to_write(self) -> str | None:
        """Write to the store every few seconds; return why it cannot be written."""
        now = self._clock.monotonic()
        if self._wrote_at is not None and now - self._wrote_at < WRITE_EVERY_S and self._seen.store_error is None:
            return None
        try:
            await self._kv.put(WRITE_KEY, str(self._clock.now()))
        except StoreError as error:
            self._must_arm = True
            return str(error).partition("; ")[0]  # without the advice
        self._wrote_at = now
        if self._must_arm:
            await self._arm()
        return None

    async def _arm(self) -> None:
        """Set the alarm for the next due task. If that fails, the next successful write tries again."""
        try:
            async with asyncio.timeout(STATUS_WAIT_S):
                await self._scheduler().arm()
        except (TimeoutError, HoldfastError):
            return
        self._must_arm = False


async def ask_scheduler(scheduler: Callable[[], SchedulerClient]) -> tuple[Status | None, Measures | None, str | None]:
    """The scheduler's status and measures, or why it does not answer."""
    try:
        async with asyncio.timeout(STATUS_WAIT_S):
            found = await scheduler().measured_status()
    except TimeoutError:
        return None, None, f"the scheduler did not answer within {STATUS_WAIT_S:g} s"
    except HoldfastError as error:
        return None, None, f"the scheduler does not answer: {error}"
    return found.status, found.measures, None
