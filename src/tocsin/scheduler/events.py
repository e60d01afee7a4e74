"""What happens in the scheduler, for those who watch: the newest few hundred, and how to wait for more."""

import asyncio
from collections import deque

from tocsin.bindings import JSON

KEPT_MAX = 400
WAIT_MAX_S = 25.0


class Events:
    """Numbered events in memory; a watcher asks for those after the last one it saw."""

    def __init__(self, first: int) -> None:
        # Numbers go on over restarts, so that a watcher's last number never names another event.
        self._next = first
        self._kept: deque[dict[str, JSON]] = deque(maxlen=KEPT_MAX)
        self._waiting: set[asyncio.Future[None]] = set()

    def add(self, event: str, at: int, **fields: JSON) -> None:
        self._kept.append({"seq": self._next, "at": at, "event": event, **fields})
        self._next += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def after(self, seq: int, wait_s: float) -> dict[str, JSON]:
        """Events after this number; waits for the first when there is none yet."""
        found = [event for event in self._kept if event["seq"] > seq]
        if not found and wait_s > 0:
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                async with asyncio.timeout(min(wait_s, WAIT_MAX_S)):
                    await future
            except TimeoutError:
                pass
            finally:
                self._waiting.discard(future)
            found = [event for event in self._kept if event["seq"] > seq]
        return {"events": found, "next": self._next - 1}


def camel_case(name: str) -> str:
    """A field of a log line as the API spells it."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
