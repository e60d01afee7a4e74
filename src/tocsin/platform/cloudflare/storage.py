"""`ctx.storage`: an object's entries and alarm.

Entries use Cloudflare's synchronous `storage.kv`, one JSON text each. As on the local platform they take
effect when called and complete without yielding to the loop. (The asynchronous calls would yield: a promise
reaches Python through a timer, and other events of the object could run in between.) Only `get_alarm`,
`sync` and `transaction` yield here.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar, cast

from tocsin.bindings import StorageTransaction
from tocsin.errors import UsageError
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.javascript import JsException, JsPromise, PyWork, create_once_callable
from tocsin.platform.shared.json_values import decode
from tocsin.platform.shared.storage_rules import (
    EntryStorage,
    OpenTransaction,
    Ready,
    check_range,
    instant,
)

T = TypeVar("T")


class CloudflareStorage(EntryStorage):
    """`ctx.storage`, on the storage of a SQLite-backed Durable Object."""

    def __init__(self, storage: Any) -> None:
        self._js = storage
        self._entries = storage.kv
        self._open_transactions = 0

    # Entries

    def list(
        self,
        *,
        start: str | None = None,
        start_after: str | None = None,
        end: str | None = None,
        prefix: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Awaitable[dict[str, Any]]:
        check_range(start, start_after, limit)
        options = javascript.options(
            {
                "start": start,
                "startAfter": start_after,
                "end": end,
                "prefix": prefix,
                "reverse": reverse,
                "limit": limit,
            }
        )
        rows = _call(lambda: javascript.js.Array.from_(self._entries.list(options)).to_py())
        return Ready({key: decode(text) for key, text in rows})

    def delete_all(self) -> Awaitable[None]:
        if self._open_transactions:
            raise UsageError("Cannot call delete_all() within a transaction")
        return JsPromise(_call(self._js.deleteAll), _nothing)

    # The alarm

    def get_alarm(self) -> Awaitable[int | None]:
        return JsPromise(_call(self._js.getAlarm), javascript.number)

    def set_alarm(self, scheduled_time: float | datetime) -> Awaitable[None]:
        return JsPromise(_call(self._js.setAlarm, instant(scheduled_time)), _nothing)

    def delete_alarm(self) -> Awaitable[None]:
        return JsPromise(_call(self._js.deleteAlarm), _nothing)

    # Transactions

    def sync(self) -> Awaitable[None]:
        return JsPromise(_call(self._js.sync), _nothing)

    def transaction(self, work: Callable[[StorageTransaction], Awaitable[T]]) -> Awaitable[T]:
        """Run work as a critical section. Its writes take effect together, or not at all if it raises."""
        py_work = PyWork[T]()

        async def body(transaction: Any) -> None:
            self._open_transactions += 1
            try:
                opened = OpenTransaction(self, transaction.rollback)
                await py_work.run(lambda: work(cast("StorageTransaction", opened)))
            finally:
                self._open_transactions -= 1

        return py_work.outcome(_call(self._js.transaction, create_once_callable(body)))

    def transaction_sync(self, work: Callable[[], T]) -> T:
        py_work = PyWork[T]()
        self._open_transactions += 1
        try:
            self._js.transactionSync(create_once_callable(lambda: py_work.run_sync(work)))
        except JsException as error:
            raise py_work.error(error) from None
        finally:
            self._open_transactions -= 1
        return py_work.result

    def _check_usable(self) -> None:
        """Not needed here: the runtime's storage raises itself."""

    def _read(self, key: str) -> str | None:
        return javascript.text(_call(self._entries.get, key))

    def _write(self, texts: Mapping[str, str]) -> None:
        for key, text in texts.items():
            _call(self._entries.put, key, text)

    def _delete(self, key: str) -> bool:
        return bool(_call(self._entries.delete, key))


def _call(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call the runtime's storage. An exception means that the object is broken."""
    try:
        return call(*arguments)
    except JsException as error:
        raise javascript.reset(error) from None


def _nothing(_value: Any) -> None:
    return None
