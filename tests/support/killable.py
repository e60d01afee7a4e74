"""A database whose process is killed at a chosen call, before or after the call takes effect."""

from collections.abc import Sequence
from typing import Any

from holdfast.types import Database, DBResult, Row


class Killed(BaseException):
    """The process is gone."""


class KillableDatabase:
    """Passes calls on until the kill. `fuse` is the number of calls left; None means no kill."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.fuse: int | None = None
        self.commits = True  # whether the last call still takes effect

    def prepare(self, sql: str) -> "KillableStatement":
        return KillableStatement(self, self._db.prepare(sql))

    async def batch(self, statements: Sequence[Any]) -> list[DBResult]:
        last = self.fuse == 0
        if self.fuse is not None:
            if self.fuse < 0 or (last and not self.commits):
                self.fuse = -1
                raise Killed
            self.fuse -= 1
        results = await self._db.batch([statement.inner for statement in statements])
        if last:
            raise Killed
        return results


class KillableStatement:
    """A statement of it."""

    def __init__(self, database: KillableDatabase, inner: Any) -> None:
        self.database = database
        self.inner = inner

    def bind(self, *values: str | float | bytes | None) -> "KillableStatement":
        return KillableStatement(self.database, self.inner.bind(*values))

    async def all(self) -> DBResult:
        return (await self.database.batch([self]))[0]

    async def run(self) -> DBResult:
        return await self.all()

    async def first(self) -> Row | None:
        rows = (await self.all()).results
        return rows[0] if rows else None
