"""Sends log entries to the log service, in the background of the event that wrote them.

`logs.py` has the rules for a batch. This driver follows them while an event lasts: a
second after the first line it sends everything, and it retries a failed batch as long as the event has time.
The rest goes with the next line.

The runtime ends an event's background half a minute after the response, without notice. Code that waits for
the service then never continues, and its batch is not delivered. The next line starts to send again.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.types import Clock, Logger
from tocsin.logs import GATHER_S, LogDelivery, LogEntry, Logs

BACKGROUND_S = 25.0  # no attempt starts later than this; the runtime ends a background after 30 s
LOST_AFTER_S = 60.0


class BackgroundLogSender:
    """`offer` entries. `wait_until` keeps the current event alive until they are sent."""

    def __init__(
        self,
        logs: Logs,
        app_id: str,
        clock: Clock,
        console: Logger,
        wait_until: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`console` reports on the sender itself. It must not lead back to this sender."""
        self._delivery = LogDelivery(logs, app_id, console)
        self._clock = clock
        self._wait_until = wait_until
        self._started_at: float | None = None  # of `_send_all`, while it runs

    def offer(self, entry: LogEntry) -> None:
        """Queue an entry. Returns at once, never raises."""
        self._delivery.put(entry)
        now = self._clock.monotonic()
        if self._started_at is None or now - self._started_at > LOST_AFTER_S:
            self._started_at = now
            self._wait_until(self._send_all(now))

    async def _send_all(self, started_at: float) -> None:
        try:
            await self._clock.sleep(GATHER_S)
            while len(self._delivery):
                if await self._delivery.send_batch():
                    continue
                wait_s = self._delivery.retry_s
                if self._clock.monotonic() + wait_s > started_at + BACKGROUND_S:
                    return
                await self._clock.sleep(wait_s)
        finally:
            if self._started_at == started_at:
                self._started_at = None
