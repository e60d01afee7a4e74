"""Brings the stored state of an older release up to date, one version at a time. Pure.

The entry `version` names the layout of all other entries; without it they are of version 1 (release 0.1.0). To change
the layout: raise `STATE_VERSION`, add the function that upgrades an entry from the version before, and add a state of
the release before to `tests/data/states`, which every later release must load.

A function gets one entry and returns it in the next layout. It must accept an entry that is in that layout already,
because after a rollback a state may hold both, and because old runs are upgraded whenever they are read. An entry that
it cannot upgrade stays as it is; loading then reports it.
"""

from collections.abc import Callable, Mapping
from typing import Any

STATE_VERSION = 3
VERSION_KEY = "version"

Upgrade = Callable[[str, Any], Any]  # key and value of any stored entry


def upgraded(entries: Mapping[str, Any], version: int) -> dict[str, Any]:
    """The entries in today's layout, from the version that they were stored with."""
    result = dict(entries)
    for step in range(version, STATE_VERSION):
        result = {key: _tried(UPGRADES[step], key, value) for key, value in result.items()}
    return result


def _tried(upgrade: Upgrade, key: str, value: Any) -> Any:
    try:
        return upgrade(key, value)
    except (KeyError, TypeError, AttributeError, ValueError):
        return value


def _from_1(key: str, value: Any) -> Any:
    """0.1.0 had other names in budgets, no `reason` in runs, and at first no `calls`."""
    if key.startswith("run:"):
        return {"calls": 0, "reason": None, **value}
    if key.startswith("budget:"):
        budget = _renamed(value, {"strikes": "limitedInARow"})
        budget["month"] = _renamed(value["month"], _MONTH_NAMES)
        return budget
    return value


_MONTH_NAMES = {
    "others": "usedByOthers",
    "taskCup": "taskTokens",
    "requestCup": "requestTokens",
    "told": "reported",
    "turnedAt": "rolledOverAt",
}


def _renamed(value: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): item for name, item in value.items()}


def _from_2(_key: str, value: Any) -> Any:
    """What was learned from the newest runs was not stored: `state_loading` looks at them."""
    return value


UPGRADES: Mapping[int, Upgrade] = {1: _from_1, 2: _from_2}
