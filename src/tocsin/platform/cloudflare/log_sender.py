"""Carries log entries to the service, in the background of the event that wrote them.

A batch goes out a second after its first line. One that fails is kept, up to a bound, and goes with the next
lines; its failure is a line on the console. The runtime ends an event's background half a minute after its
answer, without a word: a shipment that has not come back by then is given up, and the next line begins one.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from tocsin.bindings import Clock, LogEntry, Logger, Logs
from tocsin.platform.shared.log_queue import BATCH_MAX, GATHER_S, QUEUE_MAX, LogQueue

LOST_AFTER_S = 60.0


class BackgroundLogSender:
    """`wait_until` keeps the event at hand alive until its entries are gone."""

    def __init__(
        self,
        logs: Logs,
        app_id: str,
        clock: Clock,
        console: Logger,
        wait_until: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`console` tells what happens here: it must not lead back to this shipper."""
        self._logs = logs
        self._app_id = app_id
        self._clock = clock
        self._console = console
        self._wait_until = wait_until
        self._queue = LogQueue(QUEUE_MAX)
        self._began: float | None = None  # when the shipment under way did

    def offer(self, entry: LogEntry) -> None:
        """Queue an entry. Returns at once, never raises."""
        self._queue.put(entry)
        now = self._clock.monotonic()
        if self._began is None or now - self._began > LOST_AFTER_S:
            self._began = now
            self._wait_until(self._ship(now))

    async def _ship(self, began: float) -> None:
        try:
            await self._clock.sleep(GATHER_S)
            while batch := self._queue.take(BATCH_MAX):
                try:
                    await self._logs.log_batch(self._app_id, [entry for _, entry in batch])
                except Exception as error:  # noqa: BLE001 - whatever it is, the console says so
                    self._queue.put_back(batch)
                    self._console.warn("logs.send_failed", waiting=len(self._queue), error=str(error))
                    return
        finally:
            if self._began == began:
                self._began = None
