"""`tocsin export`, `import` and `rebuild`: rows of the data directory's databases in files, and the board's totals.

An export reads row by row in a transaction that sees the state of one instant and blocks nobody. Amounts are text, as
they are stored. Its file is readable by this user only, and complete or not there at all.

An import is all of a file or nothing: JSON lines, or what `wrangler d1 execute --json` prints. Without a running
service, it opens the directory as a service would, under its lock. With a running one, it writes the rows straight into
the service's `db.sqlite`: SQLite lets one writer in at a time, both sides wait a few seconds for each other, and the
next sweep reads who is registered. Checking a file takes no lock; only the last step does, which writes all rows at
once. For a service on Cloudflare the file is written as SQL.
"""

import asyncio
import csv
import json
import os
import sqlite3
import sys
from codecs import getwriter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Literal, TypeAlias

from holdfast.errors import DataDirInUse, SchemaMismatch, UsageError
from holdfast.local import sqlite_file
from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import DataDir
from holdfast.local.database import SqliteDatabase
from holdfast.local.migrations import Migration, check
from holdfast.local.sqlite_file import sync_directory
from holdfast.types import JSON, Logger
from tocsin.commands.files import DB_FILE, KV_FILE, command_logger, load_migrations, read_settings
from tocsin.errors import FileRefused
from tocsin.prices.store import PRICE_PREFIX, read_price
from tocsin.swaps import agents as agent_rows
from tocsin.swaps import store as totals
from tocsin.swaps.agents import COLUMNS, TABLES, ImportRow, RowError, Table
from tocsin.text import without_formulas

Row: TypeAlias = Mapping[str, JSON]
Exported: TypeAlias = Literal["agents", "swaps", "refusals", "prices"]
RowFormat: TypeAlias = Literal["jsonl", "csv"]
Unit: TypeAlias = Literal["line", "row"]

LINE_MAX = 1_000_000  # bytes of one agent
FILE_MAX = 64 * 1024 * 1024  # bytes: it is read as a whole
D1_STATEMENT_MAX = 99_000  # bytes; D1 accepts 100,000, including what wrangler adds
ERRORS_MAX = 100  # as many are listed; the others are only counted
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

CLAIM = [name for name in COLUMNS["claims"] if name != "btc_address"]
_CLAIMS = ", ".join(f"c.{name} AS claim_{name}" for name in CLAIM)
# In the order of an index, so that nothing has to be sorted in memory.
_ROWS = {
    "agents": f"""
SELECT a.*, {_CLAIMS} FROM agents a LEFT JOIN claims c ON c.btc_address = a.btc_address ORDER BY a.btc_address""",  # noqa: S608 - names of our own
    "swaps": "SELECT * FROM swaps ORDER BY block_height, tx_index, txid",
    "refusals": "SELECT * FROM refusals ORDER BY refused_at, code, txid",
}
_PRICES = """
SELECT substr(key, ?), value FROM entries
WHERE key >= ? AND key < ? AND (expires_at IS NULL OR expires_at > ?) ORDER BY key"""
PRICE_COLUMNS = ["token_id", "price_usd", "decimals", "fetched_at"]


def export(
    what: Exported, form: RowFormat, output: Path | None, *, data_dir: Path | None, now: int
) -> tuple[int, list[str]]:
    """Write the rows to a file, which appears complete or not at all, or to stdout.

    Returns how many there were, and the tokens whose prices could not be read.
    """
    path = _database(data_dir, KV_FILE if what == "prices" else DB_FILE)
    unreadable: list[str] = []
    stdout_or_file = nullcontext(sys.stdout.buffer) if output is None else replaced_file(output)
    with _reading(path) as connection, stdout_or_file as stream:
        if what == "prices":
            columns, rows = PRICE_COLUMNS, _prices(connection, now, unreadable)
        else:
            cursor = connection.execute(_ROWS[what])
            columns = [column[0] for column in cursor.description]
            rows = (dict(zip(columns, values, strict=True)) for values in cursor)
        return _write_rows(stream, form, columns, rows, _nested if what == "agents" else dict), unreadable


def _database(data_dir: Path | None, name: str) -> Path:
    path = Path(read_settings(data_dir=data_dir).data_dir) / name
    if not path.is_file():
        raise UsageError(f"There is no {path}: set --data-dir. A service on Cloudflare has no such file.")
    return path


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A read transaction on a database that has the tables of this release."""
    with sqlite_file.store_errors("export"), closing(sqlite_file.connect(path, query_only=True)) as connection:
        connection.execute("BEGIN")
        pending = check(connection, load_migrations()[path.name], str(path))
        if pending:
            raise SchemaMismatch(
                f"{path} is from an older release: it lacks {pending[0].name}. Start the service of this release once,"
                " or export with that release."
            )
        yield connection


@contextmanager
def replaced_file(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content replaces the file, or creates it, when the block ends without an error."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise UsageError(f"{path} exists and is not a regular file. Choose another name.")
    try:
        with TemporaryDirectory(prefix=".tocsin-output-", dir=target.parent) as made:
            draft = Path(made) / target.name
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(fd)
            draft.replace(target)
            sync_directory(target.parent)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}. Choose another file.") from error


def _prices(connection: sqlite3.Connection, now: int, unreadable: list[str]) -> Iterator[Row]:
    end = PRICE_PREFIX[:-1] + chr(ord(PRICE_PREFIX[-1]) + 1)
    for token_id, text in connection.execute(_PRICES, (len(PRICE_PREFIX) + 1, PRICE_PREFIX, end, now)):
        price = read_price(text)
        if price is None:
            unreadable.append(token_id)
        else:
            values = (token_id, price.price_usd, price.decimals, price.fetched_at)
            yield dict(zip(PRICE_COLUMNS, values, strict=True))


def _nested(row: Row) -> Row:
    """An agent as `tocsin import` reads it: with its claim as a nested object."""
    agent = {name: value for name, value in row.items() if not name.startswith("claim_")}
    claim = {name: row[f"claim_{name}"] for name in CLAIM}
    return {**agent, "claim": None if claim["status"] is None else claim}


def _write_rows(
    stream: BinaryIO, form: RowFormat, columns: list[str], rows: Iterable[Row], as_json: Callable[[Row], Row]
) -> int:
    count = 0
    writer = csv.writer(getwriter("utf-8")(stream))
    if form == "csv":
        writer.writerow(columns)
    for row in rows:
        count += 1
        if form == "csv":
            writer.writerow([_cell(value) for value in row.values()])
        else:
            stream.write(json.dumps(as_json(row), ensure_ascii=False).encode() + b"\n")
    stream.flush()
    return count


def _cell(value: JSON) -> JSON:
    """Agents choose their names, so a name must not become a formula when a spreadsheet opens the file."""
    return without_formulas(value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class TableCounts:
    """How many rows of a table are new, updated or unchanged."""

    new: int
    updated: int
    unchanged: int


@dataclass(slots=True)
class ImportReport:
    """The counts of an import; nothing was imported if any row was refused. `unit` is what refusals are numbered by."""

    unit: Unit = "line"
    imported: dict[Table, TableCounts] = field(default_factory=dict)
    refused: list[RowError] = field(default_factory=list)
    refused_count: int = 0

    def to_json(self) -> dict[str, JSON]:
        return {
            "imported": {table: asdict(counts) for table, counts in self.imported.items()},
            "refused": [{self.unit: error.line, "reason": error.reason} for error in self.refused],
            "refusedCount": self.refused_count,
        }

    def refuse(self, refusal: RowError) -> None:
        self.refused_count += 1
        if len(self.refused) < ERRORS_MAX:
            self.refused.append(refusal)


@dataclass(frozen=True, slots=True)
class ImportSource:
    """What a file holds: JSON lines, or the list that wrangler printed."""

    name: str
    content: bytes

    @property
    def unit(self) -> Unit:
        return "row" if self.content.lstrip().startswith(b"[") else "line"

    def rows(self) -> Iterator[ImportRow | RowError]:
        """The rows, each checked by itself."""
        if self.unit == "row":
            try:
                yield from agent_rows.read_results(self.content)
            except ValueError as error:
                raise FileRefused(f"{self.name} cannot be imported: {error}") from None
            return
        for number, raw in enumerate(self.content.split(b"\n"), 1):
            if len(raw) > LINE_MAX:
                yield RowError(number, f"it is longer than {LINE_MAX} bytes")
            elif raw.strip():
                yield from agent_rows.read_line(number, raw.strip())


def import_source(file: Path) -> ImportSource:
    """The content of the file, or of stdin for `-`."""
    try:
        with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as stream:
            content = stream.read(FILE_MAX + 1)
    except OSError as error:
        raise FileRefused(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > FILE_MAX:
        raise FileRefused(f"{file} has more than {FILE_MAX} bytes: split it")
    return ImportSource(str(file), content.removeprefix(BYTE_ORDER_MARK))


def import_file(connection: sqlite3.Connection, source: ImportSource) -> ImportReport:
    """Import a whole file or nothing."""
    report = import_rows(connection, source.rows(), source.unit)
    if not report.refused and not any(counts != TableCounts(0, 0, 0) for counts in report.imported.values()):
        raise no_rows(source)
    return report


def no_rows(source: ImportSource) -> FileRefused:
    return FileRefused(
        f"{source.name} holds no agents and no claims. Give JSON lines, or what wrangler d1 execute --json prints"
    )


def import_rows(
    connection: sqlite3.Connection, rows: Iterable[ImportRow | RowError], unit: Unit = "line"
) -> ImportReport:
    """Import rows in one transaction, unless one of them is refused."""
    report = ImportReport(unit)
    with sqlite_file.store_errors("import"):
        stage(connection, rows, report)
        connection.execute("BEGIN IMMEDIATE")
        refuse_conflicts(connection, agent_rows.CONFLICTS_WITHIN, report)
        refuse_conflicts(connection, agent_rows.CONFLICTS_REGISTERED, report)
        if report.refused:
            connection.execute("ROLLBACK")
        else:
            report.imported = {table: _write(connection, table) for table in TABLES}
            connection.execute("COMMIT")
    return report


def stage(connection: sqlite3.Connection, rows: Iterable[ImportRow | RowError], report: ImportReport) -> None:
    """Collect rows in a temporary table, without locking anything, and refusals in the report."""
    connection.execute(agent_rows.INCOMING)
    connection.execute("BEGIN")
    connection.executemany(agent_rows.STAGE, _staged(rows, report))
    connection.execute("COMMIT")
    connection.execute(agent_rows.INDEX)


def refuse_conflicts(connection: sqlite3.Connection, conflicts: str, report: ImportReport) -> None:
    for line, reason in connection.execute(conflicts.replace("{unit}", report.unit)):
        report.refuse(RowError(line, reason))
    report.refused.sort(key=lambda refusal: refusal.line)


def _staged(
    rows: Iterable[ImportRow | RowError], report: ImportReport
) -> Iterator[tuple[int, str, str, str | None, str]]:
    for row in rows:
        if isinstance(row, RowError):
            report.refuse(row)
        else:
            yield row.staged()


def _write(connection: sqlite3.Connection, table: Table) -> TableCounts:
    total, new = connection.execute(agent_rows.count_new(table)).fetchone()
    before = connection.total_changes
    connection.execute(agent_rows.upsert(table, agent_rows.incoming(table)))
    touched = connection.total_changes - before
    return TableCounts(new, touched - new, total - touched)


def write_d1_sql(source: ImportSource, output: Path) -> tuple[ImportReport, dict[str, int]]:
    """Check a file like an import, and write it as SQL for D1, all of it or nothing. Returns the number of rows too.

    The rows in D1 are not known here. If one of them conflicts with the file, the constraints of the tables make D1
    refuse the whole file.
    """
    report = ImportReport(source.unit)
    with (
        sqlite_file.store_errors("import"),
        closing(sqlite3.connect("", isolation_level=None)) as scratch,  # a temporary file: memory stays small
    ):
        stage(scratch, _for_d1(source.rows()), report)
        refuse_conflicts(scratch, agent_rows.CONFLICTS_WITHIN, report)
        counted = dict(scratch.execute("SELECT kind, count(*) FROM incoming GROUP BY kind").fetchall())
        if not counted and not report.refused:
            raise no_rows(source)
        if not report.refused:
            with replaced_file(output) as stream:
                for table, fields in scratch.execute("SELECT kind, fields FROM incoming ORDER BY kind, rowid"):
                    stream.write(agent_rows.d1_statement(table, json.loads(fields)).encode())
    return report, {table: counted.get(table, 0) for table in TABLES}


def _for_d1(rows: Iterable[ImportRow | RowError]) -> Iterator[ImportRow | RowError]:
    """Refuse rows that are too long for a statement of D1."""
    for row in rows:
        size = 0 if isinstance(row, RowError) else len(agent_rows.d1_statement(row.table, row.fields).encode())
        if size > D1_STATEMENT_MAX:
            reason = f"it takes {size:,} bytes of SQL, and D1 accepts {D1_STATEMENT_MAX:,}: shorten its texts"
            yield RowError(row.line, reason)
        else:
            yield row


def import_agents(source: ImportSource, *, data_dir: Path | None) -> ImportReport:
    """Import agents and claims into the data directory of the settings. A wrong file does not create the directory."""
    settings = read_settings(data_dir=data_dir)
    if not Path(settings.data_dir).exists():
        report = ImportReport(source.unit)
        with closing(sqlite3.connect("", isolation_level=None)) as scratch:
            stage(scratch, source.rows(), report)
        if report.refused:
            return report
    directory, now, logger = Path(settings.data_dir), SystemClock().now(), command_logger(settings)
    with opened(directory, load_migrations(), now=now, logger=logger) as connection:
        return import_file(connection, source)


@contextmanager
def opened(
    data_dir: Path, schemas: Mapping[str, Sequence[Migration]], *, now: int, logger: Logger
) -> Iterator[sqlite3.Connection]:
    """The directory's database: locked for this command, or shared with a running service that has the same schema."""
    try:
        data = DataDir(data_dir, schemas, now=now, logger=logger)
    except DataDirInUse:
        data = None
    try:
        with sqlite_file.store_errors("import"):
            connection = sqlite_file.connect(data_dir / DB_FILE)
        with closing(connection):
            _check_schema(connection, schemas[DB_FILE], data_dir / DB_FILE)
            yield connection
    finally:
        if data is not None:
            data.close()


def _check_schema(connection: sqlite3.Connection, migrations: Sequence[Migration], path: Path) -> None:
    """A running service may have another version than this command."""
    with sqlite_file.store_errors("import"):
        pending = check(connection, migrations, str(path))
    if pending:
        raise SchemaMismatch(
            f"{path} is in use by an older version of the service: it lacks {pending[0].name}."
            " Stop that service, then import again"
        )


def rebuild_totals(data_dir: Path | None) -> dict[str, int]:
    """Compute the totals again; returns how many rows of each table differed."""
    path = _database(data_dir, DB_FILE)

    async def count() -> dict[str, int]:
        db = SqliteDatabase(path)
        try:
            drifted = await totals.drift(db)
            await totals.rebuild(db)
        finally:
            await db.close()
        return drifted

    return asyncio.run(count())
