"""Looks at the scheduler, the store and its files every second, and remembers what it saw.

`/readyz` reads only what is remembered here, and how long ago the last look was: a loop that is stuck cannot hide
behind an old, good answer.

When the store can be written again, the alarm is set again: its retries may have moved it minutes ahead. It is set,
too, when there is none.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from tocsin.bindings import KV, Clock
from tocsin.errors import StoreError, TocsinError
from tocsin.scheduler.scheduler_client import SchedulerClient
from tocsin.scheduler.service_health import HealthSnapshot
from tocsin.shapes.measures import MeasuredStatus
from tocsin.shapes.scheduler import Status

T = TypeVar("T")

LOOK_EVERY_S = 1.0
WRITE_EVERY_S = 5.0
STATUS_WAIT_S = 2.0
WRITE_KEY = "tocsin:alive"


class FileProblem(Protocol):
    """A file of the store that is not as it should be; writes may be lost."""

    @property
    def sentence(self) -> str: ...
    @property
    def loses_writes(self) -> bool: ...


class HealthWatch:
    """Watches the scheduler and the store, for `/readyz`. `check_files` is called at every look, `on_look` after it."""

    def __init__(
        self,
        scheduler: Callable[[], SchedulerClient],
        kv: KV,
        clock: Clock,
        check_files: Callable[[], FileProblem | None] = lambda: None,
        on_look: Callable[[HealthSnapshot], None] = lambda _: None,
    ) -> None:
        self._scheduler = scheduler
        self._kv = kv
        self._clock = clock
        self._check_files = check_files
        self._on_look = on_look
        self._looked_at = clock.monotonic()
        self._wrote_at: float | None = None
        self._store_error: str | None = None
        self._status: Status | None = None
        self._scheduler_error: str | None = "the scheduler has not been looked at yet"
        self._must_arm = False  # since the store could not be written
        self._file_problem: str | None = None

    async def snapshot(self) -> HealthSnapshot:
        """What was seen last; waits for nothing."""
        return self.seen()

    def seen(self) -> HealthSnapshot:
        age_s = self._clock.monotonic() - self._looked_at
        return HealthSnapshot(
            age_s, self._store_error, self._status, self._scheduler_error, self._file_problem
        )

    async def watch(self) -> None:
        while True:
            await self.look()
            await self._clock.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        problem = self._check_files()
        self._file_problem = None
        if problem is not None and problem.loses_writes:
            # Nothing is written, so the scheduler is not asked: its answer would only be another error.
            self._store_error, self._must_arm = problem.sentence, True
            self._status = self._scheduler_error = None
        else:
            self._file_problem = None if problem is None else problem.sentence
            await self._try_to_write()
            self._status, self._scheduler_error = await ask_status(self._scheduler)
            if self._status is not None and self._status.active and self._status.next_alarm_at is None:
                await self._arm()  # its storage was wiped: it is told once, and goes on
        self._looked_at = self._clock.monotonic()
        self._on_look(self.seen())

    async def _try_to_write(self) -> None:
        now = self._clock.monotonic()
        if self._wrote_at is not None and now - self._wrote_at < WRITE_EVERY_S and self._store_error is None:
            return
        try:
            await self._kv.put(WRITE_KEY, str(self._clock.now()))
        except StoreError as error:
            self._store_error, self._must_arm = str(error), True
            return
        self._store_error, self._wrote_at = None, now
        if self._must_arm:
            await self._arm()

    async def _arm(self) -> None:
        """Set the alarm to what is due now. If that fails, the next successful write tries again."""
        try:
            async with asyncio.timeout(STATUS_WAIT_S):
                await self._scheduler().arm()
        except (TimeoutError, TocsinError):
            return
        self._must_arm = False


async def ask_status(scheduler: Callable[[], SchedulerClient]) -> tuple[Status | None, str | None]:
    """The scheduler's status, or None and why it does not answer."""
    return await _asked(lambda: scheduler().status())


async def ask_measured_status(
    scheduler: Callable[[], SchedulerClient],
) -> tuple[MeasuredStatus | None, str | None]:
    """Its status and measures by one call, or None and why it does not answer."""
    return await _asked(lambda: scheduler().measured_status())


async def _asked(ask: Callable[[], Awaitable[T]]) -> tuple[T | None, str | None]:
    try:
        async with asyncio.timeout(STATUS_WAIT_S):
            return await ask(), None
    except TimeoutError:
        return None, f"the scheduler does not answer within {STATUS_WAIT_S:g} s"
    except TocsinError as error:
        return None, f"the scheduler does not answer: {error}"
