"""`DB`: the interface of D1 on one SQLite file.

There are two connections, each with its own thread: the only writer, and a reader that cannot write
(`query_only`). In WAL mode neither waits for the other, and the event loop waits for neither.

SQLite decides which of the two runs a statement. The sqlite3 module does not expose `sqlite3_stmt_readonly`,
so the first word serves as a guess, and a statement that the reader refuses as a write goes to the writer. A
wrong guess costs one more switch to a thread (about 0.1 ms); the result is the same.

Every call is one transaction, whether one statement or a batch. A write is fsynced when the call returns.
D1's limits apply here too, so that code that works here also works there.
"""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.local.sqlite_file import SqliteThread, translated
from holdfast.local.turns import output_gate
from holdfast.statements import STATEMENTS_MAX, PreparedStatement, StatementDatabase, Value, first_word, subject_of
from holdfast.types import DBMeta, DBResult

_PLACE = re.compile(r"\?([0-9]*)")
_READS = frozenset(("SELECT", "WITH", "VALUES", "EXPLAIN"))
D1_LIMITS = {
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 32,
    sqlite3.SQLITE_LIMIT_LENGTH: 2_000_000,  # bytes of a text, a blob or a row
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 50,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 100,
}


class SqliteDatabase(StatementDatabase):
    """The `Database` binding on an existing file."""

    def __init__(self, path: Path) -> None:
        self._writer = SqliteThread(path, limits=D1_LIMITS)
        self._reader = SqliteThread(path, limits=D1_LIMITS, query_only=True)

    async def _execute(self, statements: Sequence[PreparedStatement]) -> list[DBResult]:
        await output_gate()
        if all(first_word(statement.sql) in _READS for statement in statements):
            try:
                begin = None if len(statements) == 1 else "BEGIN"  # one statement sees one state by itself
                return await self._reader.run(lambda connection: _execute(connection, begin, statements))
            except StoreUnavailable as error:
                if getattr(error.__cause__, "sqlite_errorcode", None) != sqlite3.SQLITE_READONLY:
                    raise
        return await self._writer.run(lambda connection: _execute(connection, "BEGIN IMMEDIATE", statements))

    def refuse_writes(self, reason: str | None) -> None:
        """Refuse all writes for this reason; None allows them again."""
        self._writer.refusal = reason

    async def close(self) -> None:
        await self._reader.close()
        await self._writer.close()


def _execute(
    connection: sqlite3.Connection, begin: str | None, statements: Sequence[PreparedStatement]
) -> list[DBResult]:
    sql = "transaction"
    try:
        if begin is not None:
            connection.execute(begin)
        results = []
        for statement in statements:
            sql = statement.sql
            results.append(_execute_one(connection, statement))
        sql = "transaction"
        if begin is not None:
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise translated(error, subject_of(sql)) from error
    return results


def _execute_one(connection: sqlite3.Connection, statement: PreparedStatement) -> DBResult:
    changes_before = connection.total_changes
    cursor = connection.execute(statement.sql, as_bound(statement.sql, statement.values))
    names = [column[0] for column in cursor.description or ()]
    rows = [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
    changes = connection.total_changes - changes_before
    # The sqlite3 module does not expose SQLite's counters of visited rows: rows_read counts returned rows,
    # rows_written changed rows. `changes` includes rows changed by triggers and cascades.
    return DBResult(rows, DBMeta(changes, cursor.lastrowid or 0, rows_read=len(rows), rows_written=changes))


def as_bound(sql: str, values: Sequence[Value]) -> Sequence[Value] | Mapping[str, Value]:
    """The values in the form that sqlite3 wants for `?1`: by name. Python 3.12.0 to 3.12.3 warn about a sequence."""
    numbers = _numbers(sql)
    if not numbers or len(numbers) != len(values):
        return values
    return dict(zip(numbers, values, strict=True))


@lru_cache(maxsize=STATEMENTS_MAX)
def _numbers(sql: str) -> tuple[str, ...]:
    """("1", "2", …) if the places for values are `?1`, `?2`, … without a gap; else nothing."""
    found = set(_PLACE.findall(sql))
    numbers = tuple(str(number) for number in range(1, len(found) + 1))
    return numbers if found == set(numbers) else ()
