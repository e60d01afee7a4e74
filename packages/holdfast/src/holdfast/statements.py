"""Prepared statements, the same on both platforms: the SQL that is allowed, the values, the errors."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from holdfast.errors import ConstraintKind, UsageError, ValueRefused
from holdfast.sql import NUMBER_MAX
from holdfast.types import DBResult, Row

Value: TypeAlias = str | int | float | bytes | None

INT_MAX = 2**63 - 1  # SQLite's largest integer
STATEMENTS_MAX = 512  # texts that are remembered: a service has a few hundred statements

# One unit of what SQLite skips before a statement: white space, a byte order mark, a comment. Each text has only one
# division into units, so that none makes the match slow. (Python 3.11.2 gets possessive repetition wrong.)
SKIPPED = r"(?:[\s\ufeff]|--[^\n]*(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*(?:\*/|\Z))"
_FIRST_WORDS = re.compile(rf"{SKIPPED}*([a-z]+)(?:{SKIPPED}+([a-z_]+))?", re.IGNORECASE)

# The platform controls transactions, files and connection settings. D1 refuses these statements too.
_RESERVED = frozenset(["BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "ATTACH", "DETACH", "VACUUM"])
ALLOWED_PRAGMAS = frozenset(
    [
        "defer_foreign_keys",
        "foreign_key_check",
        "foreign_key_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "optimize",
        "quick_check",
        "table_info",
        "table_list",
        "table_xinfo",
    ]
)

IN_OBJECTS = "for an atomic change use ctx.storage.transaction_sync(work)"  # what `storage.sql` has instead

_CONSTRAINTS: dict[str, ConstraintKind] = {
    "UNIQUE": "unique",
    "FOREIGN KEY": "foreign_key",
    "CHECK": "check",
    "NOT NULL": "not_null",
}


@lru_cache(maxsize=STATEMENTS_MAX)
def first_word(sql: str) -> str:
    """The first word of a statement in upper case, or "" if there is none."""
    match = _FIRST_WORDS.match(sql)
    return match[1].upper() if match else ""


@lru_cache(maxsize=STATEMENTS_MAX)
def refuse_reserved(sql: str, instead: str = "use one batch([...]) for an atomic change") -> None:
    """Raise for a statement that would control transactions, files or settings, which are the platform's job."""
    match = _FIRST_WORDS.match(sql)
    if match is None:
        return
    verb, second = match[1].upper(), (match[2] or "").lower()
    if verb in _RESERVED:
        raise UsageError(f"{verb} is reserved for the platform: {instead}")
    if verb == "PRAGMA" and second not in ALLOWED_PRAGMAS:
        raise UsageError(f"PRAGMA {second} is not available. Available are: {', '.join(sorted(ALLOWED_PRAGMAS))}")


def storable(value: Value, number: int) -> Value:
    """The value as SQLite stores it; a bool as 1 or 0. `number` is its place among the bound values."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int) and not -INT_MAX - 1 <= value <= INT_MAX:
        raise ValueRefused(f"bind: value {number} is an integer of more than 64 bits: bind amounts as text")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueRefused(f"bind: value {number} is {value}, which SQLite and D1 would change")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueRefused(f"bind: value {number} is not valid Unicode: it has a lone surrogate") from error
    if value is not None and not isinstance(value, str | int | float | bytes):
        raise ValueRefused(
            f"bind: value {number} is of type {type(value).__name__}; bind text, int, float, bytes, bool or None"
        )
    return value


def bound(values: Iterable[Value]) -> list[Value]:
    """The values as `storage.sql` binds them. Raises if one cannot be, with its place."""
    return [_real(value, number) for number, value in enumerate(values, 1)]


def _real(value: Value, number: int) -> Value:
    value = storable(value, number)
    if isinstance(value, int | float):
        if abs(value) > NUMBER_MAX:
            raise ValueRefused(f"bind: value {number} is over 2**53, where JavaScript rounds: bind it as text")
        return float(value)
    return value


def constraint_kind(message: str) -> ConstraintKind:
    """Which rule a statement broke, from SQLite's message."""
    return next((kind for rule, kind in _CONSTRAINTS.items() if f"{rule} constraint failed" in message), "other")


def subject_of(sql: str) -> str:
    """The start of a statement, for an error message: without the bound values."""
    return f"DB: {' '.join(sql.split())[:80]}"


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
