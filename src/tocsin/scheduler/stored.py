"""Reads stored entries: an unreadable one is put aside and reported, and its default is used."""

from collections.abc import Callable
from typing import TypeVar

from holdfast.types import JSON, Logger, Storage
from tocsin.errors import MalformedShape

T = TypeVar("T")

UNREADABLE = "unreadable:"


class EntryReader:
    """Reads entries. `put_aside` has the keys of those that could not be read."""

    def __init__(self, storage: Storage, logger: Logger) -> None:
        self._storage = storage
        self._logger = logger
        self.put_aside: set[str] = set()

    def read(self, key: str, value: JSON, parse: Callable[[JSON], T], default: T) -> T:
        """Parse the value of an entry. No value at all, or an unreadable one, gives the default."""
        if value is None:
            return default
        try:
            return parse(value)
        except (MalformedShape, TypeError, ValueError, OverflowError) as error:
            self._storage.put(f"{UNREADABLE}{key}", value)
            self._storage.delete(key)
            self.put_aside.add(key)
            self._logger.exception(
                "state.entry_unreadable",
                key=key,
                reason=str(error),
                fix=f"its default is used; the stored value is kept under {UNREADABLE}{key} (docs/data.md)",
            )
            return default
