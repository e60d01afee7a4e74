"""A database that calls a test before and after each of its calls."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from holdfast.types import Database, DBResult, Row, Statement

Moment: TypeAlias = Literal["before", "after"]


class Killed(BaseException):
    """The process ends here. No handler of the service may catch it."""


@dataclass
class WatchedDatabase:
    """Calls `hook` with the number of the call, from 1, and the moment: before it, or after its commit."""

    db: Database
    hook: Callable[[int, Moment], Awaitable[None]]
    calls: int = 0

    def prepare(self, sql: str) -> "WatchedStatement":
        return WatchedStatement(self, self.db.prepare(sql))

    async def batch(self, statements: Sequence[Any]) -> list[DBResult]:
        results: list[DBResult] = await self.watched(lambda: self.db.batch([each.inner for each in statements]))
        return results

    async def watched(self, call: Callable[[], Awaitable[Any]]) -> Any:
        self.calls += 1
        number = self.calls
        await self.hook(number, "before")
        result = await call()
        await self.hook(number, "after")
        return result


@dataclass
class WatchedStatement:
    """A statement of it."""

    owner: WatchedDatabase
    inner: Statement

    def bind(self, *values: str | float | bytes | None) -> "WatchedStatement":
        return WatchedStatement(self.owner, self.inner.bind(*values))

    async def first(self) -> Row | None:
        row: Row | None = await self.owner.watched(self.inner.first)
        return row

    async def all(self) -> DBResult:
        return await self.run()

    async def run(self) -> DBResult:
        result: DBResult = await self.owner.watched(self.inner.run)
        return result


def counting(db: Database) -> WatchedDatabase:
    async def nothing(number: int, moment: Moment) -> None:
        pass

    return WatchedDatabase(db, nothing)
