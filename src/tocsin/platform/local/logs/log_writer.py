"""Writes log lines to a stream in a thread, so that nothing else waits for the reader of the stream.

A pipe whose reader hangs blocks `write`. On the event loop, that would stop alarms, requests and signals. Here only
the thread waits, and lines collect in a queue. When it is full, new lines are dropped until half of it is written;
then `logs.lines_dropped` takes their place.
"""

import json
import os
import select
from collections import deque
from threading import Condition, Thread
from typing import Protocol

from tocsin.bindings import Clock

QUEUE_BYTES_MAX = 4 * 1024 * 1024


class FileStream(Protocol):
    """A stream on a file of the system."""

    def fileno(self) -> int: ...


class LogWriter:
    """A stream for `open_logger`: `write` never waits and never raises. Lines keep their order."""

    def __init__(self, stream: FileStream, clock: Clock, *, bytes_max: int = QUEUE_BYTES_MAX) -> None:
        # Not through the stream's own buffer: a thread waiting in it would block the end of the process.
        self._fd = stream.fileno()
        self._clock = clock
        self._bytes_max = bytes_max
        self.dropped = 0  # lines, since the start
        self._changed = Condition()
        self._lines: deque[bytes] = deque()
        self._bytes = 0  # in `_lines`
        self._full = False
        self._skipped = 0  # lines that did not fit since the last notice
        self._failed = 0  # lines that could not be written since the last notice; only the thread uses it
        self._rest = b""  # of a partly written line, as on a full disk; only the thread uses it
        self._closing = False
        self._thread = Thread(target=self._run, name="tocsin-log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        line = text.encode()
        with self._changed:
            self._full = self._bytes + len(line) > (self._bytes_max // 2 if self._full else self._bytes_max)
            if self._full:
                self._skipped += 1
                self.dropped += 1
                return
            if self._skipped:
                self._append(self._take_notice())
            self._append(line)
            self._changed.notify()

    def flush(self) -> None:
        """Do nothing: the thread writes every line at once."""

    def close(self, wait_s: float) -> None:
        """Write the remaining lines, for at most this long."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(wait_s)

    def _append(self, line: bytes) -> None:
        self._lines.append(line)
        self._bytes += len(line)

    def _take_notice(self) -> bytes:
        count, self._skipped = self._skipped, 0
        return self._notice(count)

    def _notice(self, count: int) -> bytes:
        line = {"at": self._clock.now(), "level": "WARN", "event": "logs.lines_dropped", "count": count}
        return json.dumps({**line, "message": f"{count} log lines were dropped"}).encode() + b"\n"

    # In the thread

    def _run(self) -> None:
        while (line := self._next()) is not None:
            if not self._put(line):
                self._failed += 1
                self.dropped += 1
            elif self._failed and self._put(self._notice(self._failed)):
                self._failed = 0

    def _next(self) -> bytes | None:
        """The next line, as soon as there is one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._skipped or self._closing)
            if self._lines:
                line = self._lines.popleft()
                self._bytes -= len(line)
                return line
            return self._take_notice() if self._skipped else None

    def _put(self, line: bytes) -> bool:
        """Write a line. False if nothing of it was written; the rest of a partly written line comes before the next."""
        pending = self._rest + line
        while pending:
            try:
                pending = pending[os.write(self._fd, pending) :]
            except BlockingIOError:  # somebody has made the pipe non-blocking
                select.select([], [self._fd], [])
            except OSError:
                untouched = len(pending) >= len(line)
                self._rest = pending[: -len(line)] if untouched else pending
                return not untouched
        self._rest = b""
        return True
