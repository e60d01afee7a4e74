"""Durable objects on a directory of your own, in a few lines. See docs/objects.md."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import DataDir
from holdfast.local.migrations import load
from holdfast.local.object_store import OBJECT_MIGRATIONS
from holdfast.local.runtime import Runtime
from holdfast.types import DurableObject, Logger

OBJECTS_FILE = "objects.sqlite"


@asynccontextmanager
async def open_objects(
    directory: Path, *, logger: Logger, **classes: type[DurableObject]
) -> AsyncIterator[SimpleNamespace]:
    """Run these classes. Yields the environment with a binding for each. Alarms ring inside the block."""
    clock = SystemClock()
    data = DataDir(directory, {OBJECTS_FILE: load(OBJECT_MIGRATIONS)}, now=clock.now(), logger=logger)
    try:
        env = SimpleNamespace()
        runtime = Runtime(directory / OBJECTS_FILE, clock=clock, logger=logger, env=env)
        for name, cls in classes.items():
            setattr(env, name, runtime.namespace(name, cls))
        await runtime.open()
        try:
            yield env
        finally:
            await runtime.close()
    finally:
        data.close()
