"""The data directory: opened whole or refused with a sentence that says why and what to do.

A refused start leaves the directory as it was, byte for byte: the lock is not signed, the checks only read,
the probe for space has no name, and no database is opened before all of them have passed.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from tocsin.bindings import Logger
from tocsin.errors import StoreUnusable
from tocsin.platform.local.sqlite import sqlite_file
from tocsin.platform.local.sqlite.data_lock import DataLock
from tocsin.platform.local.sqlite.migrations import Migration, migrate
from tocsin.platform.local.sqlite.store_check import examine

FREE_BYTES_MIN = 1024 * 1024  # what a start needs to find on the disk

_CAUSES = {
    errno.EACCES: "may not be written by this user. Give it to the user that runs Tocsin (chown)",
    errno.EDQUOT: "has no space left under this user's quota. Free some, or give another with --data-dir",
    errno.ENOENT: "cannot be made: the directory above it does not exist. Make that first (mkdir -p)",
    errno.ENOSPC: "is on a full disk. Free some space, or give another with --data-dir",
    errno.ENOTDIR: "is not a directory. Give a directory with --data-dir",
    errno.EPERM: "is protected from writing (look at lsattr). Lift that, or give another with --data-dir",
    errno.EROFS: "is on a read-only file system. Mount it writable, or give another with --data-dir",
}


class DataDir:
    """A directory that this process alone uses, with every schema in place."""

    def __init__(
        self, path: Path, schemas: Mapping[str, Sequence[Migration]], *, now: int, logger: Logger
    ) -> None:
        """Take, check, then bring each named database to its schema.

        Every `*.sqlite` in the directory is examined; those in `schemas` are made if absent, and migrated.
        """
        self.path = path
        with _explained(path):
            made = _make(path)
            try:
                self._lock = DataLock(path)
            except BaseException:
                _unmake(path, made=made)
                raise
            try:
                _probe(path)
                for name in sorted({*schemas, *(file.name for file in path.glob("*.sqlite"))}):
                    examine(path / name, schemas.get(name))
                self._lock.sign(now)
            except BaseException:
                self._lock.abandon()
                _unmake(path, made=made)
                raise
            try:
                for name, migrations in schemas.items():
                    self._bring_up(name, migrations, now, logger)
            except BaseException:
                self._lock.release()
                raise

    def _bring_up(self, name: str, migrations: Sequence[Migration], now: int, logger: Logger) -> None:
        file = self.path / name
        if not file.exists():
            sqlite_file.create(file)
        with closing(sqlite_file.connect(file)) as connection:
            for migration in migrate(connection, migrations, name, now=now):
                logger.info("migration.applied", file=name, migration=migration.name)

    def close(self) -> None:
        """Let the next process in. Close the databases first."""
        self._lock.release()


def _make(path: Path) -> bool:
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        return False
    return True


def _unmake(path: Path, *, made: bool) -> None:
    if made:
        with suppress(OSError):  # another process may have begun to use it
            path.rmdir()


def try_to_write(path: Path) -> None:
    """Raise if the disk below this directory takes no write; leaves nothing behind."""
    with _explained(path):
        _probe(path)


def _probe(path: Path) -> None:
    """Find out now whether the disk takes a write, on a file without a name: nothing can be left behind."""
    with TemporaryFile(dir=path, buffering=0) as file:
        rest = bytes(FREE_BYTES_MIN)
        while rest:  # the last bytes of a disk are written in part, without an error
            rest = rest[os.write(file.fileno(), rest) :]
        os.fsync(file.fileno())


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cause = _CAUSES.get(error.errno or 0, f"cannot be used: {error.strerror}")
        place = error.filename if str(error.filename).endswith(".sqlite") else path
        raise StoreUnusable(f"{place} {cause}") from error
    except sqlite3.Error as error:
        raise StoreUnusable(
            f"{path} holds a database that does not open ({error}). Restore a backup"
        ) from error
