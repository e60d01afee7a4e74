"""Reads stored entries: validates each, and brings those of an older release up to date, one version at a time.

An unreadable entry is put aside and reported. The entry `version` gives the layout of all other entries; without it
they have version 1 (release 0.1.0). To change the layout, raise `STATE_VERSION`, add a function that upgrades an entry
from the previous version, and add a state of the previous release to `tests/data/states`. Every later release must be
able to load it.

Such a function gets one entry and returns it in the next layout. It must accept an entry that already has that layout,
because a state may hold both after a rollback, and because old runs are upgraded on each read. An entry that it cannot
upgrade stays as it is; loading then reports it.

Measures runs, calls and alarms. The counts are stored, because an object does not live long on Cloudflare.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from holdfast.types import JSON, Logger, Storage
from tocsin.errors import MalformedShape
from tocsin.scheduler.types import Histogram, Measures, RunRecord
from tocsin.upstream.windows import Moment

T = TypeVar("T")
Upgrade = Callable[[str, JSON], JSON]  # key and value of any stored entry
STATE_VERSION = 3
VERSION_KEY = "version"
UNREADABLE = "unreadable:"
_MONTH_NAMES = {
    "others": "usedByOthers",
    "taskCup": "taskTokens",
    "requestCup": "requestTokens",
    "told": "reported",
    "turnedAt": "rolledOverAt",
}
MEASURES_KEY = "measures"
RUN_BOUNDS_S = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
CALL_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 8)  # an attempt ends after 8 s
LATENESS_BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300)


class EntryReader:
    """Reads entries; unreadable ones are put aside and reported."""

    def __init__(
        self, entries: Mapping[str, JSON], stored: Mapping[str, JSON], storage: Storage, logger: Logger
    ) -> None:
        self.entries = entries
        self._stored = stored  # the entries as they were before an upgrade
        self._storage = storage
        self._logger = logger
        self.put_aside: set[str] = set()

    def entry(self, key: str, read: Callable[[JSON], T], default: T) -> T:
        return self.value(key, self.entries[key], read, default) if key in self.entries else default

    def value(self, key: str, value: JSON, read: Callable[[JSON], T], default: T) -> T:
        """Read one entry, or one task's part of it."""
        try:
            return read(value)
        except (MalformedShape, TypeError, ValueError) as error:
            self._storage.put(f"{UNREADABLE}{key}", self._stored[key])
            self._storage.delete(key)
            self.put_aside.add(key)
            self._logger.exception(
                "state.entry_unreadable",
                key=key,
                reason=str(error),
                fix=f"its default is used; the stored value is kept under {UNREADABLE}{key} (docs/data.md)",
            )
            return default


def _reader(kind: type[T], expected: str) -> Callable[[JSON], T]:
    def read(value: JSON) -> T:
        if type(value) is not kind:
            raise TypeError(f"expected {expected}, found {value!r:.60}")
        return value

    return read


whole_number = _reader(int, "a whole number")
text = _reader(str, "text")
truth = _reader(bool, "true or false")


def whole_numbers(value: JSON) -> list[int]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {value!r:.60}")
    return [whole_number(number) for number in value]


def optional_whole_number(value: JSON) -> int | None:
    return None if value is None else whole_number(value)


def optional_whole_numbers(value: JSON) -> dict[str, int | None]:
    return {name: optional_whole_number(number) for name, number in json_object(value).items()}


def stored_moment(value: JSON) -> Moment:
    if not isinstance(value, list) or len(value) != 3:
        raise TypeError(f"expected three values, found {value!r:.60}")
    wall_ms, monotonic_ms, boot_id = value
    return Moment(whole_number(wall_ms), whole_number(monotonic_ms), text(boot_id))


def json_object(value: JSON) -> dict[str, JSON]:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, found {value!r:.60}")
    return value


def optional_object(value: JSON) -> dict[str, JSON] | None:
    return None if value is None else json_object(value)


def counts(value: JSON) -> dict[str, int]:
    return {name: whole_number(count) for name, count in json_object(value).items()}


def upgraded(entries: Mapping[str, JSON], version: int) -> dict[str, JSON]:
    """The entries in the current layout, given the version in which they were stored."""
    result = dict(entries)
    for step in range(version, STATE_VERSION):
        result = {key: _tried(UPGRADES[step], key, value) for key, value in result.items()}
    return result


def _tried(upgrade: Upgrade, key: str, value: JSON) -> JSON:
    try:
        return upgrade(key, value)
    except (KeyError, TypeError, AttributeError, ValueError):
        return value


def _from_1(key: str, value: JSON) -> JSON:
    """Release 0.1.0 used other names in budgets, had no `reason` in runs, and at first no `calls`."""
    if key.startswith("run:"):
        return {"calls": 0, "reason": None, **json_object(value)}
    if key.startswith("budget:"):
        budget = _renamed(json_object(value), {"strikes": "limitedInARow"})
        budget["month"] = _renamed(json_object(budget["month"]), _MONTH_NAMES)
        return budget
    return value


def _renamed(value: Mapping[str, JSON], names: Mapping[str, str]) -> dict[str, JSON]:
    return {names.get(name, name): item for name, item in value.items()}


def _from_2(_key: str, value: JSON) -> JSON:
    """Version 2 did not store what it learned from the newest runs: loading derives it from them."""
    return value


UPGRADES: Mapping[int, Upgrade] = {1: _from_1, 2: _from_2}


class Measurements:
    """The counts so far. `is_new`: something was counted that is not stored yet."""

    def __init__(self, stored: Measures | None = None) -> None:
        self._runs: dict[str, Histogram] = {}
        self._calls: dict[str, dict[str, Histogram]] = {}
        self._lateness = Histogram([*LATENESS_BOUNDS_S])
        self.is_new = False
        if stored is not None:
            self._restore(stored)

    def _restore(self, stored: Measures) -> None:
        """Continue from the stored counts where they use the same bounds."""
        self._runs = {name: found for name, found in stored.run_seconds.items() if found.has(RUN_BOUNDS_S)}
        self._calls = {
            upstream: {kind: found for kind, found in kinds.items() if found.has(CALL_BOUNDS_S)}
            for upstream, kinds in stored.call_seconds.items()
        }
        if stored.alarm_lateness.has(LATENESS_BOUNDS_S):
            self._lateness = stored.alarm_lateness

    def run_ended(self, record: RunRecord) -> None:
        """Count a run. The duration of an interrupted run is not known."""
        if record.outcome != "interrupted":
            counted = self._runs.setdefault(record.task, Histogram([*RUN_BOUNDS_S]))
            counted.add((record.duration_ms or 0) / 1000)
            self.is_new = True

    def call_answered(self, upstream: str, kind: str, seconds: float) -> None:
        """Count one attempt of a call by the class of its answer."""
        kinds = self._calls.setdefault(upstream, {})
        kinds.setdefault(kind, Histogram([*CALL_BOUNDS_S])).add(seconds)
        self.is_new = True

    def alarm_rang(self, late_ms: int) -> None:
        self._lateness.add(max(0, late_ms) / 1000)
        self.is_new = True

    def measures(self) -> Measures:
        return Measures(self._runs, self._calls, self._lateness)
