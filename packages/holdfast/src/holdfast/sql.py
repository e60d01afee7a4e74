"""What `storage.sql` returns, on both platforms: a cursor of rows.

Numbers are JavaScript's, because Cloudflare passes them through it: a number is bound as REAL, and a whole one is read
as an integer. Numbers that JavaScript would round are refused in both directions.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from holdfast.errors import UsageError, ValueRefused

NUMBER_MAX = 2**53 - 1


class SqlRow(dict[str, Any]):
    """A row: `row["id"]` and `row.id` are the same."""

    __slots__ = ()

    def __getattr__(self, column: str) -> Any:  # noqa: ANN401 - as dynamic as a row
        try:
            return self[column]
        except KeyError:
            raise AttributeError(f"the row has no column {column}") from None


class SqlCursor:
    """The rows of a statement that has run. Each row is returned once, in whatever way it is asked for."""

    def __init__(
        self, column_names: list[str], rows: Iterable[Sequence[Any]], *, rows_read: int, rows_written: int
    ) -> None:
        self.column_names = column_names
        self.rows_read = rows_read
        self.rows_written = rows_written
        self._rows = iter([[_read(value) for value in row] for row in rows])

    def __iter__(self) -> Iterator[SqlRow]:
        return self

    def __next__(self) -> SqlRow:
        return SqlRow(zip(self.column_names, next(self._rows), strict=True))

    def all(self) -> list[SqlRow]:
        return list(self)

    def one(self) -> SqlRow:
        """The only row. Raises if there is none, or more than one."""
        rows = self.all()
        if len(rows) != 1:
            count = "multiple" if rows else "no"
            raise UsageError(f"Expected exactly one result from SQL query, but got {count} results.")
        return rows[0]

    def raw(self) -> Iterator[list[Any]]:
        """The rows as lists, for columns whose names are not unique."""
        return self._rows


def _read(value: Any) -> Any:  # noqa: ANN401 - a value of a row
    if type(value) is float or type(value) is int:
        if not -NUMBER_MAX <= value <= NUMBER_MAX:
            raise ValueRefused(f"{value} is over 2**53, where JavaScript rounds: read it with CAST(... AS TEXT)")
        if type(value) is float and value.is_integer():
            return int(value)
    return value
