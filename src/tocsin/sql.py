"""Reads the SQL of a store: the file `queries.sql` beside its modules. Each query has a name and a description.

    -- name: newest_trades
    -- Everybody's swaps before a position, newest first.
    SELECT * FROM swaps WHERE (block_height, tx_index) < (?, ?) ORDER BY block_height DESC, tx_index DESC LIMIT ?;

A module says `SQL = read_queries(__file__)` and `db.prepare(SQL["newest_trades"])`. `{name}` in a query stands for the
text of an earlier one, which may be a part of a query.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

PART = re.compile(r"\{(\w+)\}")
_QUERY = re.compile(r"-- name: (?P<name>[a-z][a-z0-9_]*)\n(?P<about>(?:-- .*\n)+)(?P<sql>(?:(?!--).+\n)+)\n*")


def read_queries(module: str) -> Mapping[str, str]:
    """Return the queries by name. They stand in the directory of the module."""
    return _read(Path(module).with_name("queries.sql"))


@cache
def _read(path: Path) -> Mapping[str, str]:
    text = path.read_text(encoding="utf-8")
    queries: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _QUERY.match(text, at)
        if found is None:
            raise ValueError(f"{path}: expected `-- name: a_name`, a description and a query at {text[at : at + 60]!r}")
        if found["name"] in queries:
            raise ValueError(f"{path}: two queries have the name {found['name']}")
        sql = found["sql"].strip().removesuffix(";")
        queries[found["name"]] = PART.sub(lambda part: queries[part[1]], sql)
        at = found.end()
    return queries
