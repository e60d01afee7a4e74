"""An object's storage: `ctx.storage`, and the transaction that `transaction()` passes to its work.

No call yields to the loop. Writes collect in layers. The lowest layer is the turn (everything since the last real
suspension); each explicit transaction adds one on top. A layer is either merged into the one below or dropped. The
runtime commits the lowest when the turn ends. Reads go through the layers to the file.
"""

import heapq
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, TypeVar, cast

from holdfast.errors import UsageError, ValueRefused
from holdfast.local.alarms import Alarm
from holdfast.local.object_id import LocalObjectId
from holdfast.local.object_sql import ObjectSql
from holdfast.local.object_store import Changes, ObjectStore
from holdfast.local.sqlite_file import after_all_with
from holdfast.local.turns import HostObject
from holdfast.rules import instant
from holdfast.storage import READY_NONE, OpenTransaction, Ready, Storage, StorageTransaction
from holdfast.values import decode

T = TypeVar("T")

KNOWN_MAX = 256  # entries of an object that are kept in memory
KNOWN_LENGTH_MAX = 1_024  # characters; longer texts are always read from the file


class ObjectStorage(Storage):
    """`ctx.storage`."""

    def __init__(self, store: ObjectStore, owner: LocalObjectId, host: HostObject, *, has_alarm_handler: bool) -> None:
        self._store = store
        self._owner = owner
        self._host = host
        self._has_alarm_handler = has_alarm_handler
        self._layers = [Changes()]
        self._known: dict[str, str | None] = {}  # what the file has, as far as it was read or written
        self._alarm = store.read_alarm(owner.hex)
        self._sql: ObjectSql | None = None
        self.ringing: int | None = None  # generation of the alarm whose handler runs now

    def delete_all(self) -> Awaitable[None]:
        self._check_usable()
        if len(self._layers) > 1:
            raise UsageError("Cannot call delete_all() within a transaction")
        self._host.wrote()
        self.sql.clear()
        self._layers[0] = Changes(cleared=True, alarm_changed=True)
        return READY_NONE

    # Tables

    @property
    def sql(self) -> ObjectSql:
        if self._sql is None:
            self._check_usable()
            self._sql = ObjectSql(self._store.sql_files, self._owner.hex, self._host, self._layers)
        return self._sql

    # The alarm

    def get_alarm(self) -> Awaitable[int | None]:
        self._check_usable()
        alarm = self._current_alarm()
        # While its handler runs, the alarm appears to be gone. On disk it stays until the handler succeeds.
        if alarm is None or alarm.generation == self.ringing:
            return READY_NONE
        return Ready(alarm.scheduled_at)

    def set_alarm(self, scheduled_time: float | datetime | timedelta) -> Awaitable[None]:
        self._check_usable()
        if not self._has_alarm_handler:
            raise ValueRefused("the class must have an alarm() handler before set_alarm() can be called")
        now = self._host.now()
        at = max(instant(scheduled_time, now), now)
        self._change_alarm(Alarm(at, at, now, self._store.next_generation()))
        return READY_NONE

    def delete_alarm(self) -> Awaitable[None]:
        self._check_usable()
        if self._current_alarm() is not None:
            self._change_alarm(None)
        return READY_NONE

    # Transactions

    async def sync(self) -> None:
        self._check_usable()
        self._host.end_turn()
        await self._host.durable()

    def transaction(self, work: Callable[[StorageTransaction], Awaitable[T]]) -> Awaitable[T]:
        self._check_usable()

        async def body() -> T:
            self._host.end_turn()
            layer = self._push()
            try:
                result = await work(cast("StorageTransaction", OpenTransaction(self, lambda: self.drop(layer))))
            except BaseException:
                self.drop(layer)
                raise
            if layer in self._layers:  # not rolled back
                self._merge(layer)
                self._host.end_turn()
            return result

        return self._host.enter(body)

    def transaction_sync(self, work: Callable[[], T]) -> T:
        self._check_usable()
        layer = self._push()
        try:
            result = work()
        except BaseException:
            self.drop(layer)
            raise
        self._merge(layer)
        return result

    # For the runtime

    def take_turn(self) -> Changes | None:
        """The changes to commit now. None if nothing was written, or a transaction is open."""
        if len(self._layers) > 1:
            return None
        if self._sql is not None:
            self._layers[0].pages = self._sql.end_turn()
        return self._layers[0] or None

    def turn_committed(self) -> None:
        if self._sql is not None:
            self._sql.turn_committed()
        changes = self._layers[0]
        if changes.alarm_changed:
            self._alarm = changes.alarm
        if changes.cleared:
            self._known.clear()
        for key, text in changes.entries.items():
            self._remember(key, text)
        self._layers[0] = Changes()

    def alarm_in_force(self, generation: int) -> bool:
        """Whether the alarm of this generation is still the one that is set."""
        alarm = self._current_alarm()
        return alarm is not None and alarm.generation == generation

    def alarm_succeeded(self, generation: int) -> None:
        """Remove the alarm together with the handler's last writes, unless the handler set another."""
        if self.alarm_in_force(generation):
            self._change_alarm(None)

    def alarm_rescheduled(self, alarm: Alarm | None) -> None:
        """Take over a retry, or the end of the retries, that the runtime has committed."""
        self._alarm = alarm

    def discard(self) -> None:
        """Drop what was not committed."""
        self._layers = [Changes()]
        self.close()

    def close(self) -> None:
        if self._sql is not None:
            self._sql.close()

    def drop(self, layer: Changes) -> None:
        while layer in self._layers:
            self._layers.pop()
            if self._sql is not None:
                self._sql.drop(len(self._layers))

    def _check_usable(self) -> None:
        self._host.check_alive()

    def _writing(self) -> Changes:
        self._host.wrote()
        return self._layers[-1]

    def _push(self) -> Changes:
        layer = Changes()
        self._layers.append(layer)
        return layer

    def _merge(self, layer: Changes) -> None:
        assert self._layers[-1] is layer, "transactions end in the reverse order of their start"
        self._layers.pop()
        self._layers[-1].absorb(layer)
        if self._sql is not None:
            self._sql.merge(len(self._layers))

    def _decode(self, key: str, text: str) -> Any:  # noqa: ANN401 - the caller knows what it stored
        try:
            return decode(text)
        except ValueError as error:
            raise self._store.unreadable(f"the value of the entry {key!r}", error) from error

    def _rows(
        self, start: str, end: str | None, prefix: str, *, reverse: bool, limit: int | None
    ) -> Iterable[tuple[str, str]]:
        first = max(start, prefix, key=_byte_order)
        bound = _upper_bound(prefix, end)
        rows = self._store.read_range(self._owner.hex, first, bound, reverse=reverse)
        if any(layer.entries or layer.cleared for layer in self._layers):
            rows = self._merged(rows, first, bound, reverse=reverse)
        return islice(rows, limit)

    def _read(self, key: str) -> str | None:
        for layer in reversed(self._layers):
            if key in layer.entries:
                return layer.entries[key]
            if layer.cleared:
                return None
        if key in self._known:
            return self._known[key]
        text = self._store.read(self._owner.hex, key)
        self._remember(key, text)
        return text

    def _remember(self, key: str, text: str | None) -> None:
        """Keep what the file has in memory: nobody else writes these entries."""
        if text is not None and len(text) > KNOWN_LENGTH_MAX:
            self._known.pop(key, None)
            return
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[key] = text

    def _write(self, texts: Mapping[str, str]) -> None:
        self._writing().entries.update(texts)

    def _delete(self, key: str) -> bool:
        existed = self._read(key) is not None
        if existed:
            self._writing().entries[key] = None
        return existed

    def _merged(
        self, scanned: Iterator[tuple[str, str]], first: str, bound: str | bytes, *, reverse: bool
    ) -> Iterator[tuple[str, str]]:
        """The entries of the file as changed by the layers, in order. It reads the file only as far as needed."""
        changes: dict[str, str | None] = {}
        low, high = _byte_order(first), None if isinstance(bound, bytes) else _byte_order(bound)
        for layer in self._layers:
            if layer.cleared:
                changes, scanned = {}, iter(())
            for key, text in layer.entries.items():
                if low <= _byte_order(key) and (high is None or _byte_order(key) < high):
                    changes[key] = text
        unchanged = (row for row in scanned if row[0] not in changes)
        written = [(key, text) for key, text in changes.items() if text is not None]
        written.sort(key=_row_order, reverse=reverse)
        return heapq.merge(unchanged, written, key=_row_order, reverse=reverse)

    def _current_alarm(self) -> Alarm | None:
        for layer in reversed(self._layers):
            if layer.alarm_changed:
                return layer.alarm
        return self._alarm

    def _change_alarm(self, alarm: Alarm | None) -> None:
        layer = self._writing()
        layer.alarm, layer.alarm_changed = alarm, True


def _upper_bound(prefix: str, end: str | None) -> str | bytes:
    """No key with this prefix before `end` is at or after the bound. `b""` is behind all keys."""
    after = after_all_with(prefix)
    if end is None:
        return after
    return end if isinstance(after, bytes) else min(end, after, key=_byte_order)


def _row_order(row: tuple[str, str]) -> bytes:
    return _byte_order(row[0])


def _byte_order(key: str) -> bytes:
    return key.encode()
