"""Sends log entries to a log service in the background; code that logs never waits for it.

`platform/shared/log_delivery.py` has the rules for a batch. This driver follows them in one task: it waits a
second for more entries, sends a batch, and waits after a failure. `close` makes a last attempt; the event
`logs.entries_left` reports how many entries it could not send.
"""

import asyncio

from tocsin.bindings import LogEntry, Logger, Logs
from tocsin.platform.shared.log_delivery import GATHER_S, LogDelivery


class LogSender:
    """`offer` entries from the loop's thread; `start` it, and `close` it to send the rest."""

    def __init__(self, logs: Logs, app_id: str, logger: Logger) -> None:
        """`logger` reports on the sender itself. It writes to the stream only, never back to this sender."""
        self._delivery = LogDelivery(logs, app_id, logger)
        self._logger = logger
        self._has_work = asyncio.Event()  # entries wait, or the sender is closing
        self._has_batch = asyncio.Event()  # a batch is full, or the sender is closing
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def offer(self, entry: LogEntry) -> None:
        """Queue an entry. Returns at once, never raises."""
        self._delivery.put(entry)
        self._signal()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="log-sender")

    async def close(self, deadline_s: float) -> None:
        """Send the rest, for at most this long."""
        self._closing.set()
        self._signal()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=deadline_s)
            self._task.cancel()
            await asyncio.wait({self._task})
        if len(self._delivery):
            self._logger.warn("logs.entries_left", count=len(self._delivery))

    async def _run(self) -> None:
        while True:
            await self._has_work.wait()
            await _wait(self._has_batch, GATHER_S)
            sent = await self._delivery.send_batch() if len(self._delivery) else True
            self._signal()
            if self._closing.is_set() and not (sent and len(self._delivery)):
                return
            if not sent:
                await _wait(self._closing, self._delivery.retry_s)

    def _signal(self) -> None:
        _set(self._has_work, when=self._closing.is_set() or len(self._delivery) > 0)
        _set(self._has_batch, when=self._closing.is_set() or self._delivery.has_full_batch)


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
