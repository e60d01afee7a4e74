"""Carries log entries to a log service in the background; who logs never waits for it.

What it does: gathers entries for a moment, sends them in batches, waits longer after each failure.
Its limits: QUEUE_MAX entries wait at most. Above that the oldest go, DEBUG and INFO before WARN and ERROR,
and their number is told. Nothing is lost by that: the log stream has every line. A batch whose answer did
not arrive is sent again, so the service may hold an entry twice.
What it emits: `logs.send_failed`, `logs.send_recovered`, `logs.batch_refused`, `logs.entries_dropped`,
`logs.entries_left`.
"""

import asyncio

from tocsin.bindings import LogEntry, Logger, Logs
from tocsin.platform.shared.log_queue import BATCH_MAX, GATHER_S, QUEUE_MAX, LogQueue

RETRY_MIN_S = 1.0
RETRY_MAX_S = 60.0


class LogSender:
    """`offer` entries from the loop's thread; `start` it, and `close` it to send what is left."""

    def __init__(self, logs: Logs, app_id: str, logger: Logger) -> None:
        """`logger` tells what happens here: it writes to the stream only, never back to this sender."""
        self._logs = logs
        self._app_id = app_id
        self._logger = logger
        self._queue = LogQueue(QUEUE_MAX)
        self._failures = 0
        self._has_work = asyncio.Event()  # entries wait, or it is time to stop
        self._has_batch = asyncio.Event()  # no use in waiting for more
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def offer(self, entry: LogEntry) -> None:
        """Queue an entry. Returns at once, never raises."""
        self._queue.put(entry)
        self._signal()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="log-sender")

    async def close(self, deadline_s: float) -> None:
        """Send what is left, for this long at most."""
        self._closing.set()
        self._signal()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=deadline_s)
            self._task.cancel()
            await asyncio.wait({self._task})
        if len(self._queue):
            self._logger.warn("logs.entries_left", count=len(self._queue))

    async def _run(self) -> None:
        while True:
            await self._has_work.wait()
            await _wait(self._has_batch, GATHER_S)
            sent = await self._send_once() if len(self._queue) else True
            if self._closing.is_set() and not (sent and len(self._queue)):
                return
            if not sent:
                doubled_s = RETRY_MIN_S * 2 ** min(self._failures - 1, 10)
                await _wait(self._closing, min(doubled_s, RETRY_MAX_S))

    async def _send_once(self) -> bool:
        """Send one batch; False if it waits to be sent again."""
        batch = self._queue.take(BATCH_MAX)
        try:
            await self._logs.log_batch(self._app_id, [entry for _, entry in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, the sender goes on and says so
            if not getattr(error, "retryable", True):
                self._logger.warn("logs.batch_refused", count=len(batch), error=error)
                return True
            self._queue.put_back(batch)
            self._failures += 1
            self._logger.warn(
                "logs.send_failed", waiting=len(self._queue), failures=self._failures, error=error
            )
            return False
        except asyncio.CancelledError:
            self._queue.put_back(batch)
            raise
        else:
            self._tell_of_success()
            return True
        finally:
            self._signal()

    def _tell_of_success(self) -> None:
        if self._failures:
            self._logger.info("logs.send_recovered", failures=self._failures)
            self._failures = 0
        if self._queue.dropped and len(self._queue) < QUEUE_MAX:  # the notice itself must drop nothing
            fields = {"count": self._queue.dropped}
            self._queue.dropped = 0
            self._logger.warn("logs.entries_dropped", **fields)
            self._queue.put(LogEntry("WARN", "logs.entries_dropped", fields))

    def _signal(self) -> None:
        _set(self._has_work, when=self._closing.is_set() or len(self._queue) > 0)
        _set(self._has_batch, when=self._closing.is_set() or len(self._queue) >= BATCH_MAX)


def _set(event: asyncio.Event, *, when: bool) -> None:
    if when:
        event.set()
    else:
        event.clear()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
