"""Agents and claims as SQL for `wrangler d1 execute`: what an import writes, for a database elsewhere. Pure.

The rows are JSON inside the same statement that an import runs, so a field that is not given stays as it is there, too.
Each statement is within D1's limit. Run twice, the second time changes nothing.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from tocsin.bindings import JSON
from tocsin.competition.agent_rows import Table, upsert

STATEMENT_MAX = 99_000  # bytes; D1 takes 100,000, of which what wrangler sends along is a part
BATCH_MAX = (
    25_000  # bytes of a statement of several rows: wrangler takes minutes to split a file of longer ones
)

_ROWS = (
    "(SELECT value AS fields, json_extract(value, '$.btc_address') AS btc_address FROM json_each('[{rows}]'))"
)
# Wrangler looks for these without minding quotes: it deletes the statements of a transaction wherever it sees them.
_CUT_BY_WRANGLER = re.compile(r"(?<=BEGIN) (?=TRANSACTION)|;")


def statement_of(table: Table, rows: Iterable[str]) -> str:
    """One statement, without the semicolon, of rows that `row_of` made."""
    return upsert(table, _ROWS.format(rows=",".join(rows))).strip()


def row_of(fields: Mapping[str, JSON]) -> str:
    """A row as it stands in a statement: JSON in which nothing ends the text, the statement or the line."""
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return _CUT_BY_WRANGLER.sub(lambda found: f"\\u{ord(found[0]):04x}", text.replace("'", "\\u0027"))


def row_max(table: Table) -> int:
    """How many bytes a row may have."""
    return STATEMENT_MAX - len(statement_of(table, ()))


def statements(table: Table, rows: Iterable[str]) -> Iterator[str]:
    """All rows, many in a statement. None of them may be longer than `row_max`."""
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
