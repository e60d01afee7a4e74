"""`tocsin import --d1-sql`: checks a file of agents and claims like an import, and writes it as SQL for D1.

The rows in D1 are not known here. If one of them conflicts with the file, the constraints of the tables make D1 refuse
the whole file.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tocsin.commands.import_agents import ImportReport, no_rows, read_rows, refuse_conflicts, stage
from tocsin.commands.output_file import replaced_file
from tocsin.competition import d1_sql
from tocsin.competition.agent_rows import CONFLICTS_WITHIN, TABLES, ImportRow, RowError, Table
from tocsin.platform.local.sqlite import sqlite_file


@dataclass(slots=True)
class D1Report:
    """How many rows and statements were written; none, if any row was refused."""

    checked: ImportReport
    rows: dict[Table, int] = field(default_factory=dict)
    statements: int = 0


def write_d1_sql(file: Path, output: Path, on_progress: Callable[[int], None]) -> D1Report:
    """Write a whole file as SQL, or nothing. `on_progress` gets the number of bytes read."""
    report = D1Report(ImportReport())
    with (
        sqlite_file.store_errors("import"),
        closing(sqlite3.connect("", isolation_level=None)) as scratch,  # a temporary file: memory stays small
    ):
        stage(scratch, _bounded(read_rows(file, on_progress)), report.checked)
        refuse_conflicts(scratch, CONFLICTS_WITHIN, report.checked)
        if report.checked.refused:
            return report
        counted = dict(scratch.execute("SELECT kind, count(*) FROM incoming GROUP BY kind").fetchall())
        if not counted:
            raise no_rows(file)
        report.rows = {table: counted.get(table, 0) for table in TABLES}
        with replaced_file(output) as stream:
            report.statements = _write(scratch, stream)
    return report


def _bounded(rows: Iterable[ImportRow | RowError]) -> Iterator[ImportRow | RowError]:
    """Refuse rows that are too long for a statement of D1."""
    room = {table: d1_sql.row_max(table) for table in TABLES}
    for row in rows:
        size = len(d1_sql.row_of(row.fields).encode()) if isinstance(row, ImportRow) else 0
        if isinstance(row, ImportRow) and size > room[row.table]:
            yield RowError(
                row.line,
                f"it takes {size:,} bytes of SQL, and D1 accepts {room[row.table]:,}: shorten its texts",
            )
        else:
            yield row


def _write(scratch: sqlite3.Connection, stream: BinaryIO) -> int:
    count = 0
    for table in TABLES:
        staged = scratch.execute("SELECT fields FROM incoming WHERE kind = ? ORDER BY rowid", (table,))
        rows = (d1_sql.row_of(json.loads(fields)) for (fields,) in staged)
        for statement in d1_sql.statements(table, rows):
            stream.write(f"{statement};\n".encode())
            count += 1
    return count
