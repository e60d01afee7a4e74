"""Agents and claims as SQL for `wrangler d1 execute`: the same writes as an import, for a remote database. Pure.

The rows are JSON inside the statement that an import runs, so a missing field stays unchanged there as well.
Each statement is within D1's limit. Running the SQL a second time changes nothing.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from tocsin.bindings import JSON
from tocsin.competition.agent_rows import Table, upsert

STATEMENT_MAX = 99_000  # bytes; D1 accepts 100,000, including what wrangler adds
BATCH_MAX = (
    25_000  # bytes of a statement with several rows: wrangler takes minutes to split a file of longer ones
)

_ROWS = (
    "(SELECT value AS fields, json_extract(value, '$.btc_address') AS btc_address FROM json_each('[{rows}]'))"
)
# Wrangler searches for these even inside quotes, and deletes transaction statements wherever it finds them.
_CUT_BY_WRANGLER = re.compile(r"(?<=BEGIN) (?=TRANSACTION)|;")


def statement_of(table: Table, rows: Iterable[str]) -> str:
    """Build one statement, without the semicolon, from rows made by `row_of`."""
    return upsert(table, _ROWS.format(rows=",".join(rows))).strip()


def row_of(fields: Mapping[str, JSON]) -> str:
    """Encode a row for a statement: JSON in which nothing ends the string, the statement or the line."""
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return _CUT_BY_WRANGLER.sub(lambda found: f"\\u{ord(found[0]):04x}", text.replace("'", "\\u0027"))


def row_max(table: Table) -> int:
    """Return how many bytes a row may have."""
    return STATEMENT_MAX - len(statement_of(table, ()))


def statements(table: Table, rows: Iterable[str]) -> Iterator[str]:
    """Build statements for all rows, many rows in each. No row may be longer than `row_max`."""
    room = BATCH_MAX - len(statement_of(table, ()))
    batch: list[str] = []
    size = 0
    for row in rows:
        length = len(row.encode()) + 1  # and a comma
        if batch and size + length > room:
            yield statement_of(table, batch)
            batch, size = [], 0
        batch.append(row)
        size += length
    if batch:
        yield statement_of(table, batch)
