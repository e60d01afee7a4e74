"""`tocsin backup`: all databases of a data directory at one instant, in one file. The service may be running."""

import os
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from tocsin import __version__
from tocsin.commands import backup_archive
from tocsin.commands.data_files import CLOUDFLARE_BACKUP, DB_FILE, KV_FILE, OBJECTS_FILE, read_settings
from tocsin.errors import BackupRefused, StoreUnavailable, UsageError
from tocsin.platform.local.sqlite.migrations import last_applied
from tocsin.platform.local.sqlite.snapshot import copy, one_instant, row_counts
from tocsin.platform.local.sqlite.sqlite_file import sync_directory
from tocsin.shapes.backup_manifest import BackupFile, BackupManifest

# Locked in this order. The event loop itself writes the objects' database, so it must never wait.
LOCK_ORDER = (DB_FILE, KV_FILE, OBJECTS_FILE)


def backup(
    destination: Path | None, *, data_dir: Path | None, clock: Callable[[], int]
) -> tuple[Path, BackupManifest]:
    """Write a backup that appears complete or not at all. Returns its path and its manifest."""
    directory = Path(read_settings(data_dir=data_dir).data_dir)
    databases = _databases(directory)
    target = _target(destination, directory, clock())
    try:
        with TemporaryDirectory(prefix=".tocsin-backup-", dir=target.parent) as made:
            manifest = _copy_all(databases, Path(made), clock)
            draft = Path(made) / target.name
            backup_archive.write(draft, manifest, {name: Path(made) / name for name in manifest.files})
            if os.path.lexists(target):
                raise _exists(target)
            draft.rename(target)
            sync_directory(target.parent)
    except sqlite3.Error as error:
        raise BackupRefused(
            f"{directory} cannot be backed up ({error}). To find out why: tocsin doctor"
        ) from error
    except StoreUnavailable as error:
        raise BackupRefused(f"No backup was made: {error}.") from error
    except OSError as error:
        raise BackupRefused(
            f"No backup was made: {error.filename or target}: {error.strerror or error}."
        ) from error
    return target, manifest


def _databases(directory: Path) -> list[Path]:
    """Every database of the directory, in the order in which they are locked."""
    missing = [name for name in LOCK_ORDER if not (directory / name).is_file()]
    if missing:
        raise UsageError(
            f"There is no {' and no '.join(missing)} in {directory}: set --data-dir. {CLOUDFLARE_BACKUP}."
        )
    others = sorted(file.name for file in directory.glob("*.sqlite") if file.name not in LOCK_ORDER)
    return [directory / name for name in (*others, *LOCK_ORDER)]


def _target(destination: Path | None, directory: Path, now: int) -> Path:
    name = datetime.fromtimestamp(now / 1000, UTC).strftime("tocsin-%Y%m%dT%H%M%SZ.tar")
    chosen = Path() if destination is None else destination
    target = chosen / name if chosen.is_dir() else chosen
    if not target.parent.is_dir():
        raise UsageError(f"{target.parent} is not a directory. Make it first: mkdir -p {target.parent}")
    if target.parent.resolve() == directory.resolve():
        raise UsageError("A backup in the data directory would be lost with it: choose another directory.")
    if os.path.lexists(target):
        raise _exists(target)
    return target


def _exists(target: Path) -> UsageError:
    return UsageError(f"{target} already exists, and a backup overwrites nothing. Choose another name.")


def _copy_all(databases: list[Path], into: Path, clock: Callable[[], int]) -> BackupManifest:
    """Copy the databases as of one instant. The objects come first: their log cannot restart while it is read."""
    files = {}
    with one_instant(databases) as readers:
        taken_at = clock()
        for path, reader in reversed(readers.items()):
            copied = into / path.name
            os.close(os.open(copied, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            copy(reader, copied)
            migration, rows = last_applied(reader), dict(row_counts(reader))
            reader.close()
            files[path.name] = BackupFile(
                copied.stat().st_size, backup_archive.sha256_of(copied), migration, rows
            )
    return BackupManifest(backup_archive.FORMAT, __version__, taken_at, files)
