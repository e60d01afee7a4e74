"""`DB` on D1. Rows arrive as one JSON text, because Pyodide's mapping of values is not exact."""

from collections.abc import Sequence
from typing import Any

from tocsin.bindings import DBMeta, DBResult
from tocsin.errors import (
    ConstraintKind,
    ConstraintViolated,
    StoreError,
    StoreUnavailable,
    ValueRefused,
)
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.javascript import JsException
from tocsin.platform.cloudflare.subrequests import spend_on_store
from tocsin.platform.shared.sql_rules import Value
from tocsin.platform.shared.statement import PreparedStatement, StatementDatabase

EXACT_MAX = 2**53 - 1  # JavaScript rounds larger integers

_CONSTRAINTS: dict[str, ConstraintKind] = {
    "UNIQUE constraint failed": "unique",
    "FOREIGN KEY constraint failed": "foreign_key",
    "CHECK constraint failed": "check",
    "NOT NULL constraint failed": "not_null",
}
_REFUSED = (
    "SQLITE_ERROR",
    "SQLITE_MISMATCH",
    "SQLITE_TOOBIG",
    "SQLITE_RANGE",
    "SQLITE_AUTH",
    "D1_TYPE_ERROR",
)


class D1Database(StatementDatabase):
    """The `Database` binding."""

    def __init__(self, binding: Any) -> None:
        self._js = binding

    def checked(self, value: Value, number: int) -> Value:
        return _exact(super().checked(value, number), number)

    async def _execute(self, statements: Sequence[PreparedStatement]) -> list[DBResult]:
        if not statements:
            return []
        spend_on_store()
        prepared = javascript.js.Array.new()
        for statement in statements:
            prepared.push(self._js.prepare(statement.sql).bind(*map(_to_javascript, statement.values)))
        try:
            results = javascript.to_json(await self._js.batch(prepared))
        except JsException as error:
            raise _translated(str(error.message), statements[0].sql) from None
        return [_result(result) for result in results]


def _exact(value: Value, number: int) -> Value:
    if isinstance(value, int) and abs(value) > EXACT_MAX:
        raise ValueRefused(
            f"bind: value {number} is over 2**53, and D1 rounds such integers: bind amounts as text"
        )
    return value


def _to_javascript(value: Value) -> Any:
    if isinstance(value, bytes):
        return javascript.buffer(value).buffer
    if isinstance(value, int):
        return float(
            value
        )  # exact up to EXACT_MAX; Pyodide would make a large int a BigInt, which D1 refuses
    return javascript.parse("null") if value is None else value


def _result(result: dict[str, Any]) -> DBResult:
    meta = result["meta"]
    rows = [{name: _cell(value) for name, value in row.items()} for row in result["results"]]
    counts = (meta.get(name) or 0 for name in ("changes", "last_row_id", "rows_read", "rows_written"))
    return DBResult(rows, DBMeta(*counts))


def _cell(value: Any) -> Any:
    return bytes(value) if isinstance(value, list) else value  # D1 returns a blob as a list of its bytes


def _translated(message: str, sql: str) -> StoreError:
    text = message.removeprefix("D1_ERROR: ")
    subject = f"DB: {' '.join(sql.split())[:80]}"
    for words, kind in _CONSTRAINTS.items():
        if words in text:
            return ConstraintViolated(f"{subject}: {text}; nothing of the call was written", kind)
    if "SQLITE_CONSTRAINT" in text:
        return ConstraintViolated(f"{subject}: {text}; nothing of the call was written", "other")
    if any(code in message for code in _REFUSED):
        return StoreError(f"{subject}: {text}; nothing of the call was written")
    return StoreUnavailable(f"{subject}: {text}; nothing of the call was written, try again later")
