"""Reads the database while the service runs, without using its code."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


class DatabaseReader:
    """Keeps one connection for each process of the service: opening one takes longer than most queries."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def at_one_instant(self) -> Iterator[sqlite3.Connection]:
        """Give a snapshot for several queries about the same state."""
        if self._connection is None:
            self._connection = sqlite3.connect(self._path, isolation_level=None)
        self._connection.execute("BEGIN")
        try:
            yield self._connection
        finally:
            self._connection.execute("COMMIT")

    def rows(self, sql: str) -> list[dict[str, Any]]:
        with self.at_one_instant() as database:
            return rows_of(database, sql)

    def close(self) -> None:
        """Close before the process ends: the last one to close the file cleans up, and that should be the service."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def rows_of(database: sqlite3.Connection, sql: str, values: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    cursor = database.execute(sql, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
