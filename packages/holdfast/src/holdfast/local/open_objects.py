"""Durable objects on a directory of your own, in a few lines."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import DataDir
from holdfast.local.migrations import load
from holdfast.local.object_store import OBJECT_MIGRATIONS
from holdfast.local.runtime import Runtime
from holdfast.types import JSON, DurableObject, Level, Levels, Logger

OBJECTS_FILE = "objects.sqlite"


@asynccontextmanager
async def open_objects(
    directory: str | Path, *, logger: Logger | None = None, **classes: type[DurableObject]
) -> AsyncIterator[SimpleNamespace]:
    """Run these classes. Yields the environment with a binding for each. Alarms ring inside the block.

    Without a logger, lines go to the logger "holdfast" of the standard library.
    """
    path, clock, logger = Path(directory), SystemClock(), logger or StandardLogger()
    data = DataDir(path, {OBJECTS_FILE: load(OBJECT_MIGRATIONS)}, now=clock.now(), logger=logger)
    try:
        env = SimpleNamespace()
        runtime = Runtime(path / OBJECTS_FILE, clock=clock, logger=logger, env=env)
        for name, cls in classes.items():
            setattr(env, name, runtime.namespace(name, cls))
        await runtime.open()
        try:
            yield env
        finally:
            await runtime.close()
    finally:
        data.close()


class StandardLogger(Levels):
    """Writes to the `logging` module: the event, then its fields as JSON."""

    def __init__(self, **bound: JSON) -> None:
        self._bound = bound
        self._logger = logging.getLogger("holdfast")

    def bind(self, **fields: JSON) -> "StandardLogger":
        return StandardLogger(**{**self._bound, **fields})

    def _line(self, level: Level, event: str, fields: dict[str, JSON]) -> None:
        self._logger.log(getattr(logging, level), "%s %s", event, json.dumps({**self._bound, **fields}))
