"""What commands open: the settings, the databases of a data directory, a logger, and the directory of a demo.

A demo's directory is never that of a real service, and is written only while its lock is held. `demo.json` marks it: a
directory that holds a store without that file is somebody's real data.
"""

import json
import os
import secrets
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import StoreUnusable
from holdfast.local import sqlite_file
from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import DataDir
from holdfast.local.kv import KV_MIGRATIONS
from holdfast.local.migrations import Migration, load
from holdfast.local.object_store import OBJECT_MIGRATIONS
from holdfast.types import Level, Logger
from tocsin.commands.client import DEMO_DIR, SettingSources
from tocsin.local.logs import open_logger
from tocsin.logs import Redactor
from tocsin.settings import Settings, read, secret_values
from tocsin.swaps import COMPETITION_MIGRATIONS

OBJECTS_FILE = "objects.sqlite"
DB_FILE = "db.sqlite"
KV_FILE = "kv.sqlite"

DEMO_FILE = "demo.json"
PORTS_TRIED = 20
AGE_MAX_MS = 6 * 3_600_000  # an older demo starts over: its chain would take too long to catch up

CLOUDFLARE_BACKUP = (
    "A service on Cloudflare has no such files: restore its database with Time Travel "
    "(npx wrangler d1 time-travel info DB)"
)

_MIGRATIONS = {OBJECTS_FILE: OBJECT_MIGRATIONS, DB_FILE: COMPETITION_MIGRATIONS, KV_FILE: KV_MIGRATIONS}


def load_migrations() -> dict[str, list[Migration]]:
    """The migrations of every database, by file name."""
    return {name: load(directory) for name, directory in _MIGRATIONS.items()}


def read_settings(data_dir: Path | None = None) -> Settings:
    """Read the settings for a command, like those of a service; of the demo that runs here, if nothing is set."""
    demo = DEMO_DIR if data_dir is None else None
    given = {} if data_dir is None else {"TOCSIN_DATA_DIR": str(data_dir)}
    return read({**SettingSources(os.environ, Path(".env"), demo).checked(), **given})


def command_logger(settings: Settings, level_min: Level = "WARN") -> Logger:
    """A logger to stderr: stdout is for the command's output."""
    return open_logger(sys.stderr, SystemClock(), Redactor(secret_values(settings)), level_min=level_min)


@dataclass(frozen=True, slots=True)
class DemoBeginning:
    """When a demo began (unix ms), and its key."""

    began_at: int
    key: str
    is_new: bool


def free_port(settings: Settings) -> int:
    """The port of a demo that was given none: the one in the settings, or the next that is free."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    for port in range(settings.port, min(settings.port + PORTS_TRIED, 65_536)):
        with socket.socket(family) as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, port))
            if port != settings.port:
                sys.stderr.write(f"Port {settings.port} is taken: the demo takes {port}.\n")
            return port
    return settings.port


@contextmanager
def opened_demo(directory: Path, *, now: int, logger: Logger) -> Iterator[tuple[DemoBeginning, sqlite3.Connection]]:
    """The demo in this directory, or a new one, and its database. A new one is kept only if the block succeeds.

    A new demo begins in an empty store: data of an older one is deleted. Raises `StartError`, with nothing changed,
    if another process uses the directory or if it holds real data.
    """
    begun = DemoBeginning(now, "", is_new=True)

    def begin() -> None:
        nonlocal begun
        _refuse_real_data(directory)
        begun = _beginning(directory, now)
        if begun.is_new:
            for file in _store_files(directory):
                file.unlink(missing_ok=True)

    data = DataDir(directory, load_migrations(), now=now, logger=logger, once_locked=begin)
    try:
        if begun.is_new:
            _mark(directory, "{}")  # not finished yet: the next start begins again
        with closing(sqlite_file.connect(directory / DB_FILE)) as connection:
            yield begun, connection
        if begun.is_new:
            _mark(directory, json.dumps({"beganAt": begun.began_at, "key": begun.key}))
    finally:
        data.close()


def tell_commands(directory: Path, port: int, settings: Settings) -> None:
    """Let commands in the same working directory find the demo. A key that is not its own is not written."""
    begun = json.loads((directory / DEMO_FILE).read_text())
    known = {
        "TOCSIN_HOST": settings.host,
        "TOCSIN_PORT": str(port),
        "TOCSIN_DATA_DIR": str(directory),
        "HIRO_API_URL": settings.hiro_api_url,
        "TENERO_API_URL": settings.tenero_api_url,
    }
    own = {"ADMIN_KEY": begun["key"]} if any(key.secret == begun["key"] for key in settings.admin_key) else {}
    _mark(directory, json.dumps({**begun, "settings": {**known, **own}}))


def refuse_demo(directory: Path) -> None:
    """A real service must not build on a demo's invented data, and the next demo would delete the service's data."""
    if (directory / DEMO_FILE).exists():
        raise StoreUnusable(
            f"{directory} holds a demo. Choose another directory with --data-dir, "
            "or continue the demo with: tocsin serve --demo"
        )


def _refuse_real_data(directory: Path) -> None:
    if (directory / DEMO_FILE).exists():
        return
    if any(os.path.lexists(file) for file in _store_files(directory)):
        raise StoreUnusable(
            f"{directory} holds the data of a service, and a demo would write invented data into it. "
            "Choose a new directory with --data-dir"
        )


def _beginning(directory: Path, now: int) -> DemoBeginning:
    """The beginning of the demo in this directory, or of a new one."""
    try:
        stored = json.loads((directory / DEMO_FILE).read_text())
        began_at, key = int(stored["beganAt"]), str(stored["key"])
    except (OSError, ValueError, KeyError, TypeError):
        began_at, key = 0, ""
    if key and 0 <= now - began_at <= AGE_MAX_MS:
        return DemoBeginning(began_at, key, is_new=False)
    return DemoBeginning(now, secrets.token_urlsafe(12), is_new=True)


def _store_files(directory: Path) -> list[Path]:
    names = (OBJECTS_FILE, DB_FILE, KV_FILE)
    return [directory / f"{name}{suffix}" for name in names for suffix in ("", "-wal", "-shm")]


def _mark(directory: Path, text: str) -> None:
    file = directory / DEMO_FILE
    file.touch(mode=0o600)
    file.write_text(text)
