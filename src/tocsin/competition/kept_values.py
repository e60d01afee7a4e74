"""Single values that outlive a run, in the table `competition_state`."""

import json

from tocsin.bindings import Database, Statement

_GET = "SELECT value FROM competition_state WHERE key = ?"
_GET_MANY = "SELECT key, value FROM competition_state WHERE key IN (SELECT value FROM json_each(?))"
_SET = """
INSERT INTO competition_state (key, value, updated_at) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"""
_CLEAR = "DELETE FROM competition_state WHERE key = ?"


async def get_value(db: Database, key: str) -> str | None:
    row = await db.prepare(_GET).bind(key).first()
    return None if row is None else row["value"]


def ask_for_values(db: Database, *keys: str) -> Statement:
    """Return a query for rows of `key` and `value`; a key without a value has no row."""
    return db.prepare(_GET_MANY).bind(json.dumps(keys))


def set_value(db: Database, key: str, value: str, now: int) -> Statement:
    return db.prepare(_SET).bind(key, value, now)


def clear_value(db: Database, key: str) -> Statement:
    return db.prepare(_CLEAR).bind(key)
