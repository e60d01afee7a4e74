"""The newest events of the scheduler, for watchers, and a way to wait for more."""

import asyncio
from collections import deque

from tocsin.scheduler.types import EventBatch, SchedulerEvent
from tocsin.shape import FreeForm

KEPT_MAX = 400
TAIL_MAX = 50  # for a new watcher
WAIT_MAX_S = 25.0


class EventLog:
    """Numbered events in memory. A watcher asks for those after the last one it saw; a new watcher passes 0."""

    def __init__(self, first: int) -> None:
        # Numbers keep growing across restarts, so a watcher's last number never refers to a different event.
        self._next = first
        self._kept: deque[SchedulerEvent] = deque(maxlen=KEPT_MAX)
        self._waiting: set[asyncio.Future[None]] = set()

    def add(self, event: str, at: int, fields: FreeForm) -> None:
        self._kept.append(SchedulerEvent(self._next, at, event, fields))
        self._next += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def after(self, seq: int, wait_s: float) -> EventBatch:
        """Events after this number; waits for the first if there is none yet."""
        events = self._since(seq)
        if not events and wait_s > 0:
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                async with asyncio.timeout(min(wait_s, WAIT_MAX_S)):
                    await future
            except TimeoutError:
                pass
            finally:
                self._waiting.discard(future)
            events = self._since(seq)
        return EventBatch(events, self._next - 1)

    def _since(self, seq: int) -> list[SchedulerEvent]:
        if seq <= 0:
            return list(self._kept)[-TAIL_MAX:]
        return [event for event in self._kept if event.seq > seq]
