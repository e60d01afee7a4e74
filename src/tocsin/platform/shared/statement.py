"""A prepared statement, the same on both platforms: SQL and its values, run by the database that made it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tocsin.bindings import DBResult, Row
from tocsin.errors import UsageError
from tocsin.platform.shared.sql_rules import Value, refuse_owned, storable


class PreparedStatement:
    """SQL and its values; nothing runs before `first`, `all` or `run`."""

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
    """The `Database` binding, but for the running of statements."""

    def prepare(self, sql: str) -> PreparedStatement:
        refuse_owned(sql)
        return PreparedStatement(self, sql)

    def checked(self, value: Value, number: int) -> Value:
        """The value as it can be bound, or a refusal that says which one cannot."""
        return storable(value, number)

    async def batch(self, statements: Sequence[Any]) -> list[DBResult]:
        """Run all in one transaction; if one fails, none has happened."""
        for statement in statements:
            if not isinstance(statement, PreparedStatement) or statement.database is not self:
                raise UsageError("batch takes statements that this database prepared")
        return await self._execute(statements)

    @abstractmethod
    async def _execute(self, statements: Sequence[PreparedStatement]) -> list[DBResult]: ...
