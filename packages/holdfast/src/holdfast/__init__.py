"""Durable objects for Python: objects with their own storage and one alarm. The README shows them.

Importing this is quick and works on any platform; `open_objects` loads asyncio and SQLite when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.types import AlarmInfo, DurableObject

if TYPE_CHECKING:
    from holdfast.local.open_objects import open_objects
    from holdfast.schedule import Cron, Every
    from holdfast.schedules import Schedules

__all__ = ["AlarmInfo", "Cron", "DurableObject", "Every", "Schedules", "open_objects"]

_LATER = {"Cron": "schedule", "Every": "schedule", "Schedules": "schedules", "open_objects": "local.open_objects"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - as a module's attributes are
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"holdfast.{_LATER[name]}"), name)
