"""Log entries on their way to a log service."""

from collections import deque

from tocsin.bindings import LogEntry

QUEUE_MAX = 1000  # entries
BATCH_MAX = 100  # entries
GATHER_S = 1.0  # how long the first entry of a batch waits for others


class LogQueue:
    """Entries in the order they came; when there are too many, the least important and oldest go first."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._routine: deque[tuple[int, LogEntry]] = deque()
        self._important: deque[tuple[int, LogEntry]] = deque()
        self._count = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._routine) + len(self._important)

    def put(self, entry: LogEntry) -> None:
        self._count += 1
        self._line_for(entry).append((self._count, entry))
        self._shrink()

    def take(self, count: int) -> list[tuple[int, LogEntry]]:
        taken: list[tuple[int, LogEntry]] = []
        while len(self) and len(taken) < count:
            lines = [line for line in (self._routine, self._important) if line]
            taken.append(min(lines, key=lambda line: line[0][0]).popleft())
        return taken

    def put_back(self, taken: list[tuple[int, LogEntry]]) -> None:
        for numbered in reversed(taken):
            self._line_for(numbered[1]).appendleft(numbered)
        self._shrink()

    def _line_for(self, entry: LogEntry) -> deque[tuple[int, LogEntry]]:
        return self._important if entry.level in {"WARN", "ERROR"} else self._routine

    def _shrink(self) -> None:
        while len(self) > self._size_max:
            (self._routine or self._important).popleft()
            self.dropped += 1
