"""The entries that the scheduler's object has stored, read and changed in its file, without the service."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from holdfast.local.object_id import IdFactory
from tocsin.commands.files import OBJECTS_FILE

_ALL = "SELECT key, value FROM entries WHERE object = ? ORDER BY key"
_WRITE = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)"


def object_of(instance: str) -> str:
    return IdFactory("SCHEDULER").from_name(instance).hex


def stored_texts(directory: Path, instance: str) -> dict[str, str]:
    """Return each entry as JSON."""
    with closing(sqlite3.connect(directory / OBJECTS_FILE)) as file:
        return dict(file.execute(_ALL, (object_of(instance),)))


def write_texts(directory: Path, instance: str, texts: Mapping[str, str]) -> None:
    """Write entries while no process has the file open."""
    with closing(sqlite3.connect(directory / OBJECTS_FILE)) as file, file:
        file.executemany(_WRITE, [(object_of(instance), key, text) for key, text in texts.items()])
