"""Durable objects for Python: objects with their own storage and one alarm. The README shows them.

Importing this is quick and works on any platform; `open_objects` loads asyncio and SQLite when it is first used.
"""

from typing import TYPE_CHECKING, Any

from holdfast.types import AlarmInfo, DurableObject

if TYPE_CHECKING:
    from holdfast.local.open_objects import open_objects

__all__ = ["AlarmInfo", "DurableObject", "open_objects"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - as a module's attributes are
    if name != "open_objects":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.local.open_objects import open_objects

    return open_objects
