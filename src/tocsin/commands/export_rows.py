"""`tocsin export`: writes agents, swaps, refusals or prices as JSON lines or CSV, row by row.

The service may be running: a read transaction sees the state of one instant and blocks nobody. Amounts are text, as
they are stored.
"""

import csv
import json
import sqlite3
import sys
from codecs import getwriter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from tocsin.bindings import JSON
from tocsin.commands.data_files import DB_FILE, KV_FILE, load_migrations, read_settings
from tocsin.commands.output_file import replaced_file
from tocsin.competition.agent_rows import COLUMNS
from tocsin.errors import SchemaMismatch, UsageError
from tocsin.platform.local.sqlite import sqlite_file
from tocsin.platform.local.sqlite.migrations import check
from tocsin.prices.cache import PRICE_PREFIX, read_price
from tocsin.visible_text import without_formulas

Row: TypeAlias = Mapping[str, JSON]
Exported: TypeAlias = Literal["agents", "swaps", "refusals", "prices"]
RowFormat: TypeAlias = Literal["jsonl", "csv"]


@dataclass(slots=True)
class ExportReport:
    """How many rows were written, and how many could not be read."""

    rows: int = 0
    unreadable: int = 0


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
) -> ExportReport:
    """Write the rows to a file, which appears complete or not at all, or to stdout."""
    name = KV_FILE if what == "prices" else DB_FILE
    path = Path(read_settings(data_dir=data_dir).data_dir) / name
    if not path.is_file():
        raise UsageError(f"There is no {path}: set --data-dir. A service on Cloudflare has no such file.")
    report = ExportReport()
    with _reading(path) as connection, _opened(output) as stream:
        if what == "prices":
            columns, rows = PRICE_COLUMNS, _prices(connection, now, report)
        else:
            cursor = connection.execute(_ROWS[what])
            columns = [column[0] for column in cursor.description]
            rows = (dict(zip(columns, values, strict=True)) for values in cursor)
        _write(stream, form, columns, _counted(rows, report), _nested if what == "agents" else dict)
    return report


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A read transaction on a database that has the tables of this release."""
    with (
        sqlite_file.store_errors("export"),
        closing(sqlite_file.connect(path, query_only=True)) as connection,
    ):
        connection.execute("BEGIN")
        pending = check(connection, load_migrations()[path.name], str(path))
        if pending:
            raise SchemaMismatch(
                f"{path} is from an older release: it lacks {pending[0].name}. Start the service of this release once,"
                " or export with that release."
            )
        yield connection


def _opened(output: Path | None) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdout.buffer) if output is None else replaced_file(output)


def _prices(connection: sqlite3.Connection, now: int, report: ExportReport) -> Iterator[Row]:
    end = PRICE_PREFIX[:-1] + chr(ord(PRICE_PREFIX[-1]) + 1)
    for token_id, text in connection.execute(_PRICES, (len(PRICE_PREFIX) + 1, PRICE_PREFIX, end, now)):
        price = read_price(text)
        if price is None:
            report.unreadable += 1
        else:
            values = (token_id, price.price_usd, price.decimals, price.fetched_at)
            yield dict(zip(PRICE_COLUMNS, values, strict=True))


def _counted(rows: Iterable[Row], report: ExportReport) -> Iterator[Row]:
    for row in rows:
        report.rows += 1
        yield row


def _nested(row: Row) -> Row:
    """An agent as `tocsin import` reads it: with its claim as a nested object."""
    agent = {name: value for name, value in row.items() if not name.startswith("claim_")}
    claim = {name: row[f"claim_{name}"] for name in CLAIM}
    return {**agent, "claim": None if claim["status"] is None else claim}


def _write(
    stream: BinaryIO,
    form: RowFormat,
    columns: list[str],
    rows: Iterable[Row],
    as_json: Callable[[Row], Row],
) -> None:
    if form == "jsonl":
        stream.writelines(json.dumps(as_json(row), ensure_ascii=False).encode() + b"\n" for row in rows)
    else:
        writer = csv.writer(getwriter("utf-8")(stream))
        writer.writerow(columns)
        writer.writerows([_cell(value) for value in row.values()] for row in rows)
    stream.flush()


def _cell(value: JSON) -> JSON:
    """Agents choose their names, so a name must not become a formula when a spreadsheet opens the file."""
    return without_formulas(value) if isinstance(value, str) else value
