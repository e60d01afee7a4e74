"""The competition's database, made in a test's own directory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.local.database import SqliteDatabase
from holdfast_testing.stores import migrated
from tocsin.swaps import COMPETITION_MIGRATIONS


@asynccontextmanager
async def open_competition(directory: Path) -> AsyncIterator[SqliteDatabase]:
    """`DB` with the competition's tables, new or as an earlier process left it."""
    database = SqliteDatabase(migrated(directory / "db.sqlite", COMPETITION_MIGRATIONS))
    try:
        yield database
    finally:
        await database.close()
