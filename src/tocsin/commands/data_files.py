"""The databases of a data directory and their migrations; the settings and the logger of a command."""

import os
import sys
from pathlib import Path

from tocsin.bindings import Level, Logger
from tocsin.commands.setting_sources import SettingSources
from tocsin.competition import COMPETITION_MIGRATIONS
from tocsin.platform.local.clock import SystemClock
from tocsin.platform.local.logs.logs import open_logger
from tocsin.platform.local.objects.object_store import OBJECT_MIGRATIONS
from tocsin.platform.local.sqlite.kv import KV_MIGRATIONS
from tocsin.platform.local.sqlite.migrations import Migration, load
from tocsin.platform.shared.redaction import Redactor
from tocsin.settings import Settings, read, secret_values

OBJECTS_FILE = "objects.sqlite"
DB_FILE = "db.sqlite"
KV_FILE = "kv.sqlite"

CLOUDFLARE_BACKUP = (
    "A service on Cloudflare has no such files: restore its database with Time Travel "
    "(npx wrangler d1 time-travel info DB)"
)

_MIGRATIONS = {OBJECTS_FILE: OBJECT_MIGRATIONS, DB_FILE: COMPETITION_MIGRATIONS, KV_FILE: KV_MIGRATIONS}


def load_migrations() -> dict[str, list[Migration]]:
    """The migrations of every database, by file name."""
    return {name: load(directory) for name, directory in _MIGRATIONS.items()}


def read_settings(
    *, host: str | None = None, port: int | None = None, data_dir: Path | None = None
) -> Settings:
    """Read the settings from `.env` in the working directory, environment and command line; the last wins."""
    return read(environment_of(host=host, port=port, data_dir=data_dir))


def environment_of(*, host: str | None, port: int | None, data_dir: Path | None) -> dict[str, str]:
    """Every name and value that settings are read from."""
    options = {"TOCSIN_HOST": host, "TOCSIN_PORT": port, "TOCSIN_DATA_DIR": data_dir}
    given = {name: str(value) for name, value in options.items() if value is not None}
    return {**setting_sources().checked(), **given}


def setting_sources() -> SettingSources:
    return SettingSources(os.environ, Path(".env"))


def command_logger(settings: Settings, level_min: Level = "WARN") -> Logger:
    """A logger to stderr: stdout is for the command's output."""
    return open_logger(sys.stderr, SystemClock(), Redactor(secret_values(settings)), level_min=level_min)
