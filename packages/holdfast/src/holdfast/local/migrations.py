"""Migrations: numbered `.sql` files that bring a database to the schema of this code.

Each file is applied in one transaction and recorded with its number, name and checksum. Its statements are
valid on SQLite and D1. D1 opens the transaction itself, so a file never contains BEGIN.

`check` only reads. It refuses a database that is newer than the code, whose applied migrations were edited,
or whose tables differ from those that its migrations made.
"""

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from difflib import unified_diff
from functools import cache, lru_cache
from pathlib import Path

from holdfast.errors import MigrationFailed, SchemaMismatch, UsageError
from holdfast.statements import SKIPPED, first_word, refuse_reserved

DIFFERENCE_MAX = 20  # lines of a difference in an error message
PLAIN_CACHED = 256  # a file's statements are mostly those of its migrations

_TOKEN = re.compile(
    rf"(?P<skipped>{SKIPPED}+)|(?P<text>x?'(?:[^']|'')*')"
    r'|(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\])|(?P<word>[\w$]+)|(?P<sign><=|>=|<>|!=|==|\|\||.)',
    re.DOTALL | re.IGNORECASE,
)

_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
# The name of the table is older than this package, and databases have it.
_RECORDS = """
CREATE TABLE IF NOT EXISTS tocsin_migrations (
  number INTEGER PRIMARY KEY NOT NULL,
  name TEXT NOT NULL,
  checksum TEXT NOT NULL,
  applied_at INTEGER NOT NULL
)"""
# Without the internal tables of SQLite, D1 and this module.
_LIVE_SCHEMA = """
SELECT type, sql FROM sqlite_schema
WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_*' AND name NOT GLOB '_cf_*'
  AND name NOT IN ('tocsin_migrations', 'd1_migrations')
ORDER BY type DESC, name"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration file."""

    number: int
    name: str
    checksum: str
    statements: tuple[str, ...]


def load(directory: Path) -> list[Migration]:
    """Read the migrations of a directory, in order."""
    names = sorted(path.name for path in directory.glob("*.sql"))
    for expected, name in enumerate(names, 1):
        match = _FILE_NAME.fullmatch(name)
        if match is None:
            raise SchemaMismatch(f"{directory / name}: rename it to the form 0001_what_it_does.sql, in lower case")
        if int(match[1]) != expected:
            raise SchemaMismatch(f"{directory}: {name} should have number {expected:04}; number the files without gaps")
    return [_read(directory / name) for name in names]


def _read(path: Path) -> Migration:
    text = path.read_text(encoding="utf-8")  # line ends become \n, whatever the checkout has
    statements = split(text)
    for statement in statements:
        try:
            refuse_reserved(statement)
        except UsageError as error:
            raise SchemaMismatch(f"{path}: {error}; each migration is already one transaction") from error
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return Migration(int(path.name[:4]), path.stem, checksum, tuple(statements))


def check(connection: sqlite3.Connection, migrations: Sequence[Migration], file_name: str) -> list[Migration]:
    """The pending migrations. Raises if the database differs from the applied ones."""
    pending = _pending(_applied(connection), migrations, file_name)
    applied = migrations[: len(migrations) - len(pending)]
    expected = schema_of(*(statement for migration in applied for statement in migration.statements))
    lines = difference(expected, describe(connection))
    if lines:
        shown = "\n  ".join(lines[:DIFFERENCE_MAX])
        more = f"\n  and {len(lines) - DIFFERENCE_MAX} more" if len(lines) > DIFFERENCE_MAX else ""
        raise SchemaMismatch(
            f"{file_name} differs from what its migrations created. Undo the change by hand or restore a backup. "
            f"The difference:\n  {shown}{more}"
        )
    return pending


def migrate(
    connection: sqlite3.Connection, migrations: Sequence[Migration], file_name: str, *, now: int
) -> list[Migration]:
    """Check, then apply the pending migrations, each in its own transaction. Returns them."""
    pending = check(connection, migrations, file_name)
    for migration in pending:
        try:
            _apply(connection, migration, now)
        except (sqlite3.Error, MigrationFailed) as error:
            raise MigrationFailed(
                f"{file_name}: migration {migration.name} failed ({error}); nothing of it was kept. "
                "Fix the data or the migration, then start again"
            ) from error
        finally:
            if connection.in_transaction:
                connection.rollback()
    return pending


def _apply(connection: sqlite3.Connection, migration: Migration, now: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in migration.statements:
        connection.execute(statement)
    orphan = connection.execute("PRAGMA foreign_key_check").fetchone()
    if orphan is not None:
        raise MigrationFailed(f"a row of {orphan[0]} would refer to a row of {orphan[2]} that does not exist")
    connection.execute(_RECORDS)
    connection.execute(
        "INSERT INTO tocsin_migrations (number, name, checksum, applied_at) VALUES (?, ?, ?, ?)",
        (migration.number, migration.name, migration.checksum, now),
    )
    connection.execute("COMMIT")


def last_applied(connection: sqlite3.Connection) -> str | None:
    """The name of the newest migration that this database has."""
    applied = _applied(connection)
    return applied[-1][1] if applied else None


def _applied(connection: sqlite3.Connection) -> list[tuple[int, str, str]]:
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'tocsin_migrations'").fetchall():
        return []
    return connection.execute("SELECT number, name, checksum FROM tocsin_migrations ORDER BY number").fetchall()


def _pending(
    applied: Sequence[tuple[int, str, str]], migrations: Sequence[Migration], file_name: str
) -> list[Migration]:
    if len(applied) > len(migrations):
        raise SchemaMismatch(
            f"{file_name} is newer than this code: it has migration {applied[-1][1]}, this code ends at "
            f"number {len(migrations):04}. Run the newer version, or restore an older backup"
        )
    for (number, name, checksum), migration in zip(applied, migrations, strict=False):
        if (number, name) != (migration.number, migration.name):
            raise SchemaMismatch(
                f"{file_name} has migration {name} as its number {number:04}, this code has "
                f"{migration.name}: they are from different versions. Run the version that made the database"
            )
        if checksum != migration.checksum:
            raise SchemaMismatch(
                f"{name}.sql was edited after it was applied to {file_name}. Restore its old text and put the "
                f"change into a new migration, number {len(migrations) + 1:04}"
            )
    return list(migrations[len(applied) :])


def describe(connection: sqlite3.Connection) -> list[str]:
    """The schema of a database, one line per column or clause, without layout, case and comments."""
    lines = []
    for _, sql in connection.execute(_LIVE_SCHEMA):
        head, *items = plain(sql)
        name = head.removeprefix("create ")
        lines += [name, *(f"{name}: {item}" for item in items if item != ")")]
    return lines


@cache
def schema_of(*statements: str) -> tuple[str, ...]:
    """What `describe` returns for a database created by these statements.

    Cached: a start needs it several times, always for the same few migrations.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        return tuple(describe(connection))


def difference(expected: Sequence[str], actual: Sequence[str]) -> list[str]:
    """The missing and the unexpected lines."""
    kinds = {"-": "missing:    ", "+": "unexpected: "}
    lines = list(unified_diff(expected, actual, n=0, lineterm=""))[2:]  # without the names of two files
    return [kinds[line[0]] + line[1:] for line in lines if line[0] in kinds]


def split(script: str) -> list[str]:
    """The statements of a script. SQLite itself decides where one ends, so triggers stay whole."""
    statements: list[str] = []
    rest = ""
    for piece in script.split(";"):
        rest += piece
        if sqlite3.complete_statement(rest + ";"):
            statements.append(rest.strip())
            rest = ""
        else:
            rest += ";"
    statements.append(rest.removesuffix(";").strip())
    return [statement for statement in statements if first_word(statement)]


def _tokens(sql: str) -> Iterator[str]:
    for match in _TOKEN.finditer(sql):
        if match["text"]:
            yield match["text"]
        elif match["quoted"]:
            yield match["quoted"][1:-1].lower()
        elif not match["skipped"]:
            yield match[0].lower()


@lru_cache(PLAIN_CACHED)
def plain(sql: str) -> tuple[str, ...]:
    """A CREATE statement without comments, case, quotes and layout: its head, then a line per item."""
    lines = [""]
    depth = 0
    for word in _tokens(sql):
        depth += (word == "(") - (word == ")")
        opens_or_divides = word in {"(", ","} and depth == 1
        if opens_or_divides:
            lines.append("")
        elif word == ")" and depth == 0:
            lines.append(")")
        else:
            lines[-1] += f" {word}"
    return tuple(line.strip() for line in lines if line.strip())
