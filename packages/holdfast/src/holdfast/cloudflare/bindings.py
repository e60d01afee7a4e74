"""The bindings of a deployment: `Database` on D1, `KV` on Workers KV, and the clock."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import Any

from pyodide.ffi import JsException

from holdfast.cloudflare import javascript
from holdfast.errors import ConstraintViolated, StoreError, StoreUnavailable, UsageError, ValueRefused
from holdfast.rules import LIST_MAX, check_entry, check_key, check_keys, check_page
from holdfast.sql import NUMBER_MAX
from holdfast.statements import PreparedStatement, StatementDatabase, Value, constraint_kind, subject_of
from holdfast.subrequests import spend_on_store
from holdfast.types import DBMeta, DBResult, KVList

_REFUSED = ("SQLITE_ERROR", "SQLITE_MISMATCH", "SQLITE_TOOBIG", "SQLITE_RANGE", "SQLITE_AUTH", "D1_TYPE_ERROR")


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
            prepared.push(self._js.prepare(statement.sql).bind(*map(to_javascript, statement.values)))
        try:
            results = javascript.to_json(await self._js.batch(prepared))
        except JsException as error:
            raise translated(str(error.message), subject_of(statements[0].sql)) from None
        return [_result(result) for result in results]


def _exact(value: Value, number: int) -> Value:
    if isinstance(value, int) and abs(value) > NUMBER_MAX:
        raise ValueRefused(f"bind: value {number} is over 2**53, and D1 rounds such integers: bind amounts as text")
    return value


def to_javascript(value: Value) -> Any:
    """A bound value."""
    if isinstance(value, bytes):
        return javascript.buffer(value).buffer
    if isinstance(value, int):
        return float(value)  # exact up to NUMBER_MAX; Pyodide would make a large int a BigInt, which D1 refuses
    return javascript.parse("null") if value is None else value


def _result(result: dict[str, Any]) -> DBResult:
    meta = result["meta"]
    rows = [{name: _cell(value) for name, value in row.items()} for row in result["results"]]
    counts = (meta.get(name) or 0 for name in ("changes", "last_row_id", "rows_read", "rows_written"))
    return DBResult(rows, DBMeta(*counts))


def _cell(value: Any) -> Any:
    return bytes(value) if isinstance(value, list) else value  # D1 returns a blob as a list of its bytes


def translated(message: str, subject: str, effect: str = "nothing of the call was written") -> StoreError:
    """The error of SQLite, from its message."""
    text = message.removeprefix("D1_ERROR: ")
    kind = constraint_kind(text)
    if kind != "other" or "SQLITE_CONSTRAINT" in text:
        return ConstraintViolated(f"{subject}: {text}; {effect}", kind)
    if any(code in message for code in _REFUSED):
        return StoreError(f"{subject}: {text}; {effect}")
    return StoreUnavailable(f"{subject}: {text}; {effect}, try again later")


class CloudflareClock:
    """The `Clock` binding.

    Cloudflare's clock stands still between two waits for I/O, as a defense against timing attacks. An isolate's own
    monotonic clock means nothing to the next isolate. The wall clock there is never set, so it measures durations
    too: budgets and back-offs continue exactly when an object moves.
    """

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class WorkersKV:
    """The `KV` binding."""

    def __init__(self, binding: Any) -> None:
        self._js = binding

    async def get(self, key: str) -> str | None:
        check_key(key)
        return javascript.text(await self._result("get", self._js.get(key)))

    async def get_many(self, keys: Sequence[str]) -> dict[str, str]:
        """The values of the keys that exist."""
        check_keys(keys)
        if not keys:
            return {}
        unique = javascript.from_json(list(dict.fromkeys(keys)))
        values = await self._result("get_many", self._js.get(unique))
        pairs = javascript.to_json(javascript.js.Array.from_(values))
        return {key: value for key, value in pairs if value is not None}

    async def put(self, key: str, value: str, *, expiration_ttl: int | None = None) -> None:
        check_entry(key, value, expiration_ttl)
        options = javascript.options({"expirationTtl": expiration_ttl})
        await self._result("put", self._js.put(key, value, options))

    async def delete(self, key: str) -> None:
        check_key(key)
        await self._result("delete", self._js.delete(key))

    async def list(self, *, prefix: str = "", limit: int = LIST_MAX, cursor: str | None = None) -> KVList:
        check_page(prefix, limit)
        options = javascript.options({"prefix": prefix, "limit": limit, "cursor": cursor})
        try:
            page = javascript.to_json(await self._result("list", self._js.list(options)))
        except StoreUnavailable as error:
            if cursor is not None and "400" in str(error):
                raise UsageError("KV.list: this cursor belongs to another list; start without one") from None
            raise
        return KVList([key["name"] for key in page["keys"]], page.get("cursor") or None)

    async def _result(self, call: str, promise: Awaitable[Any]) -> Any:
        spend_on_store()
        try:
            return await promise
        except JsException as error:
            raise StoreUnavailable(f"KV.{call}: {error.message}; try again later") from None
