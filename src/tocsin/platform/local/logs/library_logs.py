"""Turns the reports of libraries that use Python's own `logging` into lines of our log.

Without this, Python writes them to stderr as plain text: the log would not be one JSON object per line, and a stderr
that nobody reads would block the event loop.
"""

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from tocsin.bindings import JSON, Logger

TEXT_MAX = 4_000


class _Handler(logging.Handler):
    def __init__(self, logger: Logger) -> None:
        super().__init__(logging.WARNING)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, JSON] = {"library": record.name, "message": _text(record).strip()[:TEXT_MAX]}
        if record.exc_info:
            fields["traceback"] = "".join(traceback.format_exception(*record.exc_info))[-TEXT_MAX:]
        write = self._logger.error if record.levelno >= logging.ERROR else self._logger.warn
        write("library.reported", **fields)


def _text(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a mistake in a library's call must not become an error of its caller
        return str(record.msg)


@contextmanager
def library_logs(logger: Logger) -> Iterator[None]:
    """Within the block, warnings and errors of libraries are lines of this logger. Any thread may report."""
    handler, root = _Handler(logger), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
