"""`tocsin verify` and `tocsin restore`: check a backup, and put it into a data directory.

A restore writes into the directory itself, which may be a mount point or below a directory of another user. It moves
the old files into a directory beside the new ones. Until the last file is in place, the directory holds an empty
database named MARKER, and the service refuses to start: an interrupted restore cannot be mistaken for a complete one.
"""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from tocsin.commands import backup_archive
from tocsin.commands.data_files import load_migrations, read_settings
from tocsin.errors import BackupRefused, DataDirInUse, SchemaMismatch, StartError, UsageError
from tocsin.platform.local.sqlite.data_lock import LOCK_NAME, DataLock, is_in_use
from tocsin.platform.local.sqlite.migrations import Migration, check
from tocsin.platform.local.sqlite.snapshot import row_counts
from tocsin.platform.local.sqlite.sqlite_file import connect_to_read, sync_directory
from tocsin.shapes.backup_manifest import BackupManifest

MARKER = "restore-unfinished.sqlite"


def verify(archive: Path) -> BackupManifest:
    """Read a whole backup and check it. Raises `BackupRefused` with the problem; returns the manifest."""
    with TemporaryDirectory(prefix="tocsin-verify-") as made:
        return _unpack_checked(archive, Path(made))


def restore(
    archive: Path, *, data_dir: Path | None, force: bool, now: int
) -> tuple[Path, BackupManifest, Path | None]:
    """Verify, then put the databases in place. Returns the data directory, and the new place of the old files."""
    directory = Path(read_settings(data_dir=data_dir).data_dir)
    created = _prepare(directory, force=force)
    try:
        with TemporaryDirectory(prefix=".tocsin-restore-", dir=directory) as made:
            manifest = _unpack_checked(archive, Path(made))
            aside = _switch(directory, Path(made), list(manifest.files), now)
    except (OSError, BackupRefused, UsageError) as error:
        if created:
            with suppress(OSError):
                directory.rmdir()
        if isinstance(error, OSError):
            raise BackupRefused(f"{error.filename or directory}: {error.strerror or error}.") from error
        raise
    return directory, manifest, aside


def _unpack_checked(archive: Path, into: Path) -> BackupManifest:
    if not archive.is_file():
        raise UsageError(f"{archive} is not a file. Give a backup: a .tar made by `tocsin backup`.")
    manifest = backup_archive.unpack(archive, into)
    schemas = load_migrations()
    missing = sorted(schemas.keys() - manifest.files.keys())
    if missing:
        raise BackupRefused(
            f"{archive} cannot be used: it lists no {', '.join(missing)}. Give another backup."
        )
    for name, expected in manifest.files.items():
        fault = _fault(into / name, schemas.get(name), expected.rows)
        if fault is not None:
            raise BackupRefused(f"{archive} cannot be used: {name}: {fault}. Give another backup.")
    return manifest


def _fault(path: Path, migrations: Sequence[Migration] | None, rows: dict[str, int]) -> str | None:
    """What is wrong with a database. A database of an older release is fine: the service migrates it at the start."""
    try:
        with closing(connect_to_read(path)) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                return " ".join(verdict.split())
            if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
                return "a row refers to a row that does not exist"
            if migrations is not None:
                check(connection, migrations, path.name)
            counted = dict(row_counts(connection))
    except SchemaMismatch as error:
        return str(error)
    except sqlite3.Error as error:
        return str(error)
    return None if counted == rows else "its tables do not have the rows that the manifest lists"


def _prepare(directory: Path, *, force: bool) -> bool:
    """Create the directory if it does not exist. Raises if it is in use, or if it is not empty and `force` is off."""
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        if not directory.is_dir():
            raise UsageError(f"{directory} is not a directory. Choose another with --data-dir.") from None
    except FileNotFoundError:
        raise UsageError(
            f"The parent directory of {directory} does not exist. Create it: mkdir -p {directory.parent}"
        ) from None
    except OSError as error:
        raise BackupRefused(f"{directory} cannot be created: {error.strerror}.") from error
    else:
        return True
    if is_in_use(directory):
        raise BackupRefused(f"{directory} is in use by a running service. Stop it first, then restore.")
    there = [entry.name for entry in directory.iterdir() if entry.name not in {LOCK_NAME, "lost+found"}]
    if there and not force:
        raise BackupRefused(
            f"{directory} is not empty ({', '.join(sorted(there)[:3])}). Use --force to move its databases aside "
            "and restore, or choose another directory with --data-dir."
        )
    return False


def _switch(directory: Path, unpacked: Path, names: list[str], now: int) -> Path | None:
    """Move the old databases aside and the new ones in, under the lock that a start needs."""
    try:
        lock = DataLock(directory)
    except DataDirInUse as error:
        raise BackupRefused(f"{error}.") from error
    except StartError as error:
        raise BackupRefused(str(error)) from error
    try:
        os.close(os.open(directory / MARKER, os.O_WRONLY | os.O_CREAT, 0o600))
        sync_directory(directory)
        aside = _move_aside(directory, now)
        for name in names:
            (unpacked / name).rename(directory / name)
            _give_to_owner(directory / name, directory)
        sync_directory(directory)
        (directory / MARKER).unlink()
        sync_directory(directory)
    finally:
        lock.abandon()
    return aside


def _move_aside(directory: Path, now: int) -> Path | None:
    old = [file for file in directory.glob("*.sqlite*") if file.name != MARKER]
    if not old:
        return None
    aside = directory / datetime.fromtimestamp(now / 1000, UTC).strftime("before-restore-%Y%m%dT%H%M%SZ")
    aside.mkdir(mode=0o700)
    for file in old:
        file.rename(aside / file.name)
    _give_to_owner(aside, directory)
    sync_directory(aside)
    return aside


def _give_to_owner(path: Path, directory: Path) -> None:
    """When root restores, give the file to the user that runs the service: the owner of the directory."""
    if os.geteuid() == 0:
        owner = directory.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
