"""The queue of log entries that wait for the log service."""

from collections import deque

from tocsin.bindings import LogEntry

QUEUE_MAX = 1000  # entries


class LogQueue:
    """Entries in order of arrival. A full queue drops the oldest, DEBUG and INFO before WARN and ERROR."""

    def __init__(self, size_max: int = QUEUE_MAX) -> None:
        self._size_max = size_max
        self._routine: deque[tuple[int, LogEntry]] = deque()
        self._important: deque[tuple[int, LogEntry]] = deque()
        self._last_number = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._routine) + len(self._important)

    @property
    def full(self) -> bool:
        return len(self) >= self._size_max

    def put(self, entry: LogEntry) -> None:
        self._last_number += 1
        self._lane_of(entry).append((self._last_number, entry))
        self._shrink()

    def take(self, count: int) -> list[tuple[int, LogEntry]]:
        """Remove and return the oldest entries, each with its number."""
        batch: list[tuple[int, LogEntry]] = []
        while len(self) and len(batch) < count:
            lanes = [lane for lane in (self._routine, self._important) if lane]
            batch.append(min(lanes, key=lambda lane: lane[0][0]).popleft())
        return batch

    def put_back(self, batch: list[tuple[int, LogEntry]]) -> None:
        """Return entries from `take` to their places."""
        for numbered in reversed(batch):
            self._lane_of(numbered[1]).appendleft(numbered)
        self._shrink()

    def _lane_of(self, entry: LogEntry) -> deque[tuple[int, LogEntry]]:
        return self._important if entry.level in {"WARN", "ERROR"} else self._routine

    def _shrink(self) -> None:
        while len(self) > self._size_max:
            (self._routine or self._important).popleft()
            self.dropped += 1
