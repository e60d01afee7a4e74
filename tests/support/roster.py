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

# Stricter than ours, and in another order: exports without column names follow it.
REFERENCE_SCHEMA = """
CREATE TABLE agents (
  btc_address TEXT PRIMARY KEY, stx_address TEXT NOT NULL UNIQUE, stx_public_key TEXT NOT NULL,
  btc_public_key TEXT, taproot_address TEXT, display_name TEXT, description TEXT, bns_name TEXT, owner TEXT,
  verified_at TEXT NOT NULL, last_active_at TEXT, erc8004_agent_id INTEGER, nostr_public_key TEXT,
  capabilities_json TEXT, last_identity_check TEXT, github_username TEXT,
  referred_by_btc TEXT REFERENCES agents (btc_address), referral_code TEXT NOT NULL UNIQUE,
  last_check_in_at TEXT, "check" TEXT DEFAULT ';',
  CHECK (length(btc_address) > 0), FOREIGN KEY (referred_by_btc) REFERENCES agents (btc_address)
);
CREATE TABLE claims (
  status TEXT NOT NULL CHECK (status IN ('pending', 'verified', 'rewarded', 'failed')),
  btc_address TEXT PRIMARY KEY REFERENCES agents (btc_address), display_name TEXT, tweet_url TEXT,
  tweet_author TEXT, claimed_at TEXT, reward_satoshis INTEGER, reward_txid TEXT
);
CREATE TABLE inbox (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB);
CREATE INDEX agents_by_name ON agents (display_name);
CREATE TRIGGER agent_noted AFTER INSERT ON inbox BEGIN
  INSERT INTO agents (btc_address, stx_address) VALUES ('bc1trigger', CASE WHEN 1 THEN 'x' END);
  SELECT CASE WHEN 1 THEN 2 END;
END;
"""


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
