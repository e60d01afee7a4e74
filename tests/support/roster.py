"""Agents for imports, and the reference's tables as in its exports."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from holdfast.local import sqlite_file
from holdfast_testing.stores import migrated
from stacks_simulator.addresses import address_of
from tocsin.swaps import COMPETITION_MIGRATIONS


def address(number: int) -> str:
    return address_of(f"agent {number}")


def line(number: int, **fields: Any) -> str:
    return json.dumps({"btc_address": f"bc1q{number}", "stx_address": address(number), **fields})


@contextmanager
def open_roster(directory: Path) -> Iterator[sqlite3.Connection]:
    """A plain connection to a database with the competition's tables."""
    with closing(sqlite_file.connect(migrated(directory / "db.sqlite", COMPETITION_MIGRATIONS))) as opened:
        yield opened


def rows(connection: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    cursor = connection.execute(f"SELECT * FROM {table} ORDER BY btc_address")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, values, strict=True)) for values in cursor]
