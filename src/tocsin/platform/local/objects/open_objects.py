"""Durable objects on a directory of your own, in a few lines. See docs/objects.md."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

from tocsin.bindings import DurableObject, Logger
from tocsin.platform.local.clock import SystemClock
from tocsin.platform.local.objects.object_store import OBJECT_MIGRATIONS
from tocsin.platform.local.objects.runtime import Runtime
from tocsin.platform.local.sqlite.data_dir import DataDir
from tocsin.platform.local.sqlite.migrations import load

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
