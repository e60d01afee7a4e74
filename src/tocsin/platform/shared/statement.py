"""Prepared statements, the same on both platforms: SQL with its values, run by their database."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tocsin.bindings import DBResult, Row
from tocsin.errors import UsageError
from tocsin.platform.shared.sql_rules import Value, refuse_reserved, storable


class PreparedStatement:
    """SQL with its values. Nothing runs before `first`, `all` or `run`."""

    def __init__(self, database: "StatementDatabase", sql: str, values: tuple[Value, ...] = ()) -> None:
        self.database = database
        self.sql = sql
        self.values = values

    def bind(self, *values: Value) -> "PreparedStatement":
        checked = tuple(self.database.checked(value, number) for number, value in enumerate(values, 1))
        return PreparedStatement(self.database, self.sql, checked)

    async def all(self) -> DBResult:
        return (await self.database.batch([self]))[0]

    async def run(self) -> DBResult:
        return await self.all()

    async def first(self) -> Row | None:
        rows = (await self.all()).results
        return rows[0] if rows else None


class StatementDatabase(ABC):
    """The `Database` binding, except for running the statements."""

    def prepare(self, sql: str) -> PreparedStatement:
        refuse_reserved(sql)
        return PreparedStatement(self, sql)

    def checked(self, value: Value, number: int) -> Value:
        """The value as it is bound. Raises if it cannot be, with its place."""
        return storable(value, number)

    async def batch(self, statements: Sequence[Any]) -> list[DBResult]:
        """Run all in one transaction. If one fails, none of them takes effect."""
        for statement in statements:
            if not isinstance(statement, PreparedStatement) or statement.database is not self:
                raise UsageError("batch takes statements that this database prepared")
        return await self._execute(statements)

    @abstractmethod
    async def _execute(self, statements: Sequence[PreparedStatement]) -> list[DBResult]: ...
