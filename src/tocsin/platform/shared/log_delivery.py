"""How log entries reach the log service, the same on both platforms. A driver decides when to send.

- A batch that the service refuses for good (`retryable` is False) is dropped, so that it cannot block others.
- A batch that failed returns to the head of the queue and is sent again, after 1 s, doubling up to 60 s. If
  only the reply was lost, the service has its entries twice.
- Entries that a full queue dropped are counted. After the next success, the count is sent to the log and the service.

The log stream or the console has every line in any case. Events: `logs.send_failed`, `logs.send_recovered`,
`logs.batch_refused`, `logs.entries_dropped`.
"""

import asyncio

from tocsin.bindings import LogEntry, Logger, Logs
from tocsin.platform.shared.log_queue import LogQueue

LOG_APP_ID = "aibtc-landing"  # the name of this application at the log service
BATCH_MAX = 100  # entries
GATHER_S = 1.0  # how long the first entry of a batch waits for others
RETRY_MIN_S = 1.0
RETRY_MAX_S = 60.0


class LogDelivery:
    """The queue, and one attempt at a time to send its first batch."""

    def __init__(self, logs: Logs, app_id: str, logger: Logger) -> None:
        """`logger` reports failures. It must not lead back to this delivery."""
        self._logs = logs
        self._app_id = app_id
        self._logger = logger
        self._queue = LogQueue()
        self._failures = 0  # in a row

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def has_full_batch(self) -> bool:
        return len(self._queue) >= BATCH_MAX

    @property
    def retry_s(self) -> float:
        """How long to wait after a failed attempt."""
        return min(RETRY_MIN_S * 2.0 ** min(self._failures - 1, 10), RETRY_MAX_S)

    def put(self, entry: LogEntry) -> None:
        self._queue.put(entry)

    async def send_batch(self) -> bool:
        """Send the first batch. False: it failed and is in the queue again."""
        batch = self._queue.take(BATCH_MAX)
        try:
            await self._logs.log_batch(self._app_id, [entry for _, entry in batch])
        except Exception as error:  # noqa: BLE001 - any error is reported, and the sender continues
            if not getattr(error, "retryable", True):
                self._logger.warn(
                    "logs.batch_refused", count=len(batch), error=f"{type(error).__name__}: {error}"
                )
                return True
            self._queue.put_back(batch)
            self._failures += 1
            self._logger.warn(
                "logs.send_failed",
                waiting=len(self._queue),
                failures=self._failures,
                error=f"{type(error).__name__}: {error}",
            )
            return False
        except asyncio.CancelledError:
            self._queue.put_back(batch)
            raise
        self._report_success()
        return True

    def _report_success(self) -> None:
        if self._failures:
            self._logger.info("logs.send_recovered", failures=self._failures)
            self._failures = 0
        if self._queue.dropped and not self._queue.full:  # or the notice would drop another entry
            fields = {"count": self._queue.dropped}
            self._queue.dropped = 0
            self._logger.warn("logs.entries_dropped", **fields)
            self._queue.put(LogEntry("WARN", "logs.entries_dropped", fields))
