"""Brings the stored state of an older release up to date, one version at a time. Pure.

The entry `version` gives the layout of all other entries; without it they have version 1 (release 0.1.0). To change
the layout, raise `STATE_VERSION`, add a function that upgrades an entry from the previous version, and add a state of
the previous release to `tests/data/states`. Every later release must be able to load it.

A function gets one entry and returns it in the next layout. It must accept an entry that already has that layout,
because a state may hold both after a rollback, and because old runs are upgraded on each read. An entry that it cannot
upgrade stays as it is; loading then reports it.
"""

from collections.abc import Callable, Mapping

from tocsin.bindings import JSON
from tocsin.scheduler.stored_entries import json_object

STATE_VERSION = 3
VERSION_KEY = "version"

Upgrade = Callable[[str, JSON], JSON]  # key and value of any stored entry


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


_MONTH_NAMES = {
    "others": "usedByOthers",
    "taskCup": "taskTokens",
    "requestCup": "requestTokens",
    "told": "reported",
    "turnedAt": "rolledOverAt",
}


def _renamed(value: Mapping[str, JSON], names: Mapping[str, str]) -> dict[str, JSON]:
    return {names.get(name, name): item for name, item in value.items()}


def _from_2(_key: str, value: JSON) -> JSON:
    """Version 2 did not store what it learned from the newest runs: `state_loading` derives it from them."""
    return value


UPGRADES: Mapping[int, Upgrade] = {1: _from_1, 2: _from_2}
