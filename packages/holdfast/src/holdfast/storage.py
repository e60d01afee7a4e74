"""`ctx.storage`: what is the same on both platforms, in Cloudflare's words and Python's spelling.

Calls take effect when they are *made*; awaiting one only fetches its result. Cloudflare's promises behave the same way,
so `storage.put(...)` without `await` is a write. An entry is one JSON text, which each platform reads and writes in its
own way.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar, overload

from holdfast.errors import UsageError
from holdfast.rules import check_range, checked_key, entry_text
from holdfast.sql import SqlCursor
from holdfast.values import JSON, decode

T = TypeVar("T")


class Ready(Generic[T]):
    """A result that is already there. Awaiting it does not suspend."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __await__(self) -> Generator[None, None, T]:
        yield from ()
        return self.value


READY_NONE: Ready[None] = Ready(None)


class Entries(ABC):
    """What storage and its transactions have in common."""

    @overload
    def get(self, key: str, /) -> Awaitable[Any]: ...  # the caller knows what it stored
    @overload
    def get(self, key: Sequence[str], /) -> Awaitable[dict[str, Any]]: ...
    def get(self, key: str | Sequence[str], /) -> Awaitable[Any]:
        self._check_usable()
        if isinstance(key, str):
            text = self._read(checked_key(key))
            return Ready(None if text is None else self._decode(key, text))
        texts = {k: self._read(k) for k in sorted([checked_key(k) for k in key])}
        return Ready({k: self._decode(k, text) for k, text in texts.items() if text is not None})

    @overload
    def put(self, key: str, value: JSON, /) -> Awaitable[None]: ...
    @overload
    def put(self, key: Mapping[str, JSON], /) -> Awaitable[None]: ...
    def put(self, key: str | Mapping[str, JSON], value: JSON = None, /) -> Awaitable[None]:
        self._check_usable()
        entries = {key: value} if isinstance(key, str) else key
        # All are checked before the first is written: with one bad value, nothing is written.
        self._write({checked_key(k): entry_text(k, v) for k, v in entries.items()})
        return READY_NONE

    @overload
    def delete(self, key: str, /) -> Awaitable[bool]: ...
    @overload
    def delete(self, key: Sequence[str], /) -> Awaitable[int]: ...
    def delete(self, key: str | Sequence[str], /) -> Awaitable[Any]:
        self._check_usable()
        if isinstance(key, str):
            return Ready(self._delete(checked_key(key)))
        return Ready(sum(self._delete(k) for k in [checked_key(k) for k in key]))

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
        """The entries of a range, in the byte order of their keys or against it."""
        self._check_usable()
        check_range(start, start_after, limit)
        if start_after is not None:
            start = start_after + "\0"  # the next text in byte order
        rows = self._rows(start or "", end, prefix or "", reverse=reverse, limit=limit)
        return Ready({key: self._decode(key, text) for key, text in rows})

    @abstractmethod
    def get_alarm(self) -> Awaitable[int | None]: ...
    @abstractmethod
    def set_alarm(self, scheduled_time: float | datetime | timedelta) -> Awaitable[None]: ...
    @abstractmethod
    def delete_alarm(self) -> Awaitable[None]: ...

    @abstractmethod
    def _check_usable(self) -> None:
        """Raise if the object was reset."""

    @abstractmethod
    def _read(self, key: str) -> str | None: ...
    @abstractmethod
    def _rows(
        self, start: str, end: str | None, prefix: str, *, reverse: bool, limit: int | None
    ) -> Iterable[tuple[str, str]]: ...
    @abstractmethod
    def _write(self, texts: Mapping[str, str]) -> None: ...
    @abstractmethod
    def _delete(self, key: str) -> bool: ...

    def _decode(self, _key: str, text: str) -> Any:  # noqa: ANN401 - the caller knows what it stored
        return decode(text)


class StorageTransaction(Entries):
    """Storage as seen inside `transaction()`: an `OpenTransaction`."""

    @abstractmethod
    def rollback(self) -> None: ...


class SqlStorage(Protocol):
    """An object's own SQLite database."""

    @property
    def database_size(self) -> int: ...
    def exec(self, query: str, /, *values: str | float | bytes | None) -> SqlCursor: ...


class Storage(Entries):
    """An object's own durable storage and its one alarm."""

    @property
    def kv(self) -> "SyncKV":
        return SyncKV(self)

    @property
    @abstractmethod
    def sql(self) -> SqlStorage: ...
    @abstractmethod
    def delete_all(self) -> Awaitable[None]: ...
    @abstractmethod
    def sync(self) -> Awaitable[None]: ...
    @abstractmethod
    def transaction(self, work: Callable[[StorageTransaction], Awaitable[T]]) -> Awaitable[T]:
        """Run work as a critical section. Its writes take effect together, or not at all if it raises."""

    @abstractmethod
    def transaction_sync(self, work: Callable[[], T]) -> T: ...


class SyncKV:
    """`storage.kv`: the same entries, without awaiting."""

    def __init__(self, storage: Any) -> None:  # noqa: ANN401 - passes calls on to it
        self._storage = storage

    def get(self, key: str, /) -> Any:  # noqa: ANN401 - the caller knows what it stored
        return self._storage.get(checked_key(key)).value

    def put(self, key: str, value: JSON, /) -> None:
        self._storage.put(checked_key(key), value)

    def delete(self, key: str, /) -> bool:
        existed: bool = self._storage.delete(checked_key(key)).value
        return existed

    def list(self, **options: Any) -> dict[str, Any]:  # noqa: ANN401 - those of the storage
        found: dict[str, Any] = self._storage.list(**options).value
        return found


class OpenTransaction:
    """The storage inside `transaction()`. After a rollback it raises."""

    def __init__(self, storage: Storage, undo: Callable[[], None]) -> None:
        self._storage = storage
        self._undo = undo
        self._rolled_back = False

    def rollback(self) -> None:
        self._check("rollback")
        self._undo()
        self._rolled_back = True

    def __getattr__(self, call: str) -> Any:  # noqa: ANN401 - a bound method of the storage
        if call not in _TRANSACTION_CALLS:
            raise AttributeError(f"a transaction has no {call}()")
        self._check(call)
        return getattr(self._storage, call)

    def _check(self, call: str) -> None:
        if self._rolled_back:
            raise UsageError(f"Cannot {call}() on rolled back transaction")


_TRANSACTION_CALLS = frozenset(["get", "put", "delete", "list", "delete_all", "get_alarm", "set_alarm", "delete_alarm"])
