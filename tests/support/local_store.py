"""The competition's database, made in a test's own directory."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from holdfast.local.database import SqliteDatabase
from holdfast.local.migrations import load
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


def query_plan(sql: str, *values: object) -> list[str]:
    """Return how SQLite would run this query on the competition's tables."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in load(COMPETITION_MIGRATIONS):
            for statement in migration.statements:
                connection.execute(statement)
        return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
