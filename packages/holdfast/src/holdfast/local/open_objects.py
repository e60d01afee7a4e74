"""Durable objects on a directory of your own, in a few lines."""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from holdfast.errors import UsageError
from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import DataDir
from holdfast.local.live_object import IDLE_S
from holdfast.local.migrations import load
from holdfast.local.object_id import LocalObjectId
from holdfast.local.object_store import OBJECT_MIGRATIONS
from holdfast.local.runtime import LocalNamespace, Runtime
from holdfast.types import JSON, DurableObject, Level, Levels, Logger

T = TypeVar("T", bound=DurableObject)

OBJECTS_FILE = "objects.sqlite"


class Objects:
    """The objects of some classes: `objects.get(Counter, "a").add(2)`. It is also `self.env` of each object.

    Each class has a binding with its name, or with the keyword that it was given by: `objects.Counter`.
    """

    def __init__(self) -> None:
        self._namespaces: dict[type[DurableObject], LocalNamespace] = {}

    def _bind(self, runtime: Runtime, name: str, cls: type[DurableObject]) -> None:
        if hasattr(self, name) or cls in self._namespaces:
            raise UsageError(f"{cls.__name__} cannot be bound as {name}: each class and each name can be bound once")
        self._namespaces[cls] = runtime.namespace(name, cls)
        setattr(self, name, self._namespaces[cls])

    def namespace(self, cls: type[DurableObject]) -> LocalNamespace:
        """The binding of a class, with `id_from_name`, `id_from_string`, `new_unique_id` and `get`."""
        if cls not in self._namespaces:
            raise UsageError(f"{cls.__name__} is not one of the classes that were passed to open_objects()")
        return self._namespaces[cls]

    def get(self, cls: type[T], name: str) -> T:
        """A stub of the object with this name. Its methods are those of the class: `async def`, called remotely."""
        return cast("T", self.namespace(cls).get_by_name(name))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever was bound
        raise AttributeError(f"no class is bound as {name}: pass it to open_objects()")


@asynccontextmanager
async def open_objects(
    directory: str | Path,
    /,
    *classes: type[DurableObject],
    logger: Logger | None = None,
    clock: SystemClock | None = None,
    env: Mapping[str, Any] | None = None,
    idle_s: float | None = IDLE_S,
    on_exhausted: Callable[[LocalObjectId, Exception], Awaitable[None]] | None = None,
    **bound: type[DurableObject],
) -> AsyncIterator[Objects]:
    """Run these classes on a directory. Alarms ring inside the block.

    Without a logger, lines go to the logger "holdfast" of the standard library. `env` adds attributes to `self.env`.
    An object that was idle for `idle_s` seconds is dropped from memory (None: never).
    """
    path, clock, logger = Path(directory), clock or SystemClock(), logger or StandardLogger()
    data = open_directory(path, now=clock.now(), logger=logger)
    try:
        objects = Objects()
        vars(objects).update(env or {})
        runtime = Runtime(
            path / OBJECTS_FILE, clock=clock, logger=logger, env=objects, idle_s=idle_s, on_exhausted=on_exhausted
        )
        for name, cls in [*((cls.__name__, cls) for cls in classes), *bound.items()]:
            objects._bind(runtime, name, cls)  # noqa: SLF001 - not for users
        await runtime.open()
        try:
            yield objects
        finally:
            await runtime.close()
    finally:
        data.close()


def open_directory(path: Path, *, now: int, logger: Logger) -> DataDir:
    """Lock a directory for objects, and make or check their file."""
    return DataDir(path, {OBJECTS_FILE: load(OBJECT_MIGRATIONS)}, now=now, logger=logger)


class StandardLogger(Levels):
    """Writes to the `logging` module: the event, then its fields as JSON."""

    def _line(self, level: Level, event: str, fields: dict[str, JSON]) -> None:
        logging.getLogger("holdfast").log(getattr(logging, level), "%s %s", event, json.dumps(fields))
