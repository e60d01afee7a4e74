"""The data directory: opened completely, or refused with the cause and the fix.

A refused start leaves every byte of the directory as it was: the lock is not signed, the checks only read,
the file that probes for space has no name, and no database is opened before all checks have passed.
"""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from tocsin.bindings import Logger
from tocsin.errors import StoreUnusable
from tocsin.platform.local.sqlite import sqlite_file
from tocsin.platform.local.sqlite.data_lock import LOCK_NAME, DataLock
from tocsin.platform.local.sqlite.known_files import KnownFiles
from tocsin.platform.local.sqlite.migrations import Migration, migrate
from tocsin.platform.local.sqlite.store_check import examine, is_damage

FREE_BYTES_MIN = 1024 * 1024  # free space that a start requires

_CAUSES = {
    errno.EACCES: "is not writable by this user. Make the user that runs Tocsin its owner (chown)",
    errno.EDQUOT: "has no space left under this user's quota. Free some, or choose another with --data-dir",
    errno.EIO: "is on a disk that reports an error. See the kernel log (dmesg), and start again when the disk works",
    errno.ELOOP: "is a symbolic link, and its target would be overwritten. Remove the link",
    errno.ENOENT: "cannot be created: its parent directory does not exist. Create that first (mkdir -p)",
    errno.ENOSPC: "is on a full disk. Free some space, or choose another with --data-dir",
    errno.ENOTDIR: "is not a directory. Choose a directory with --data-dir",
    errno.EPERM: "is write-protected (see lsattr). Remove the protection, or choose another with --data-dir",
    errno.EROFS: "is on a read-only file system. Mount it writable, or choose another with --data-dir",
}

_OF_ONE_FILE = frozenset((errno.EACCES, errno.ELOOP, errno.EPERM))


@dataclass(frozen=True, slots=True)
class FileFault:
    """A file of the directory that is no longer the one that this process has open."""

    file: Path
    sentence: str
    loses_writes: bool


class DataDir:
    """A directory that only this process uses, with every database at its schema."""

    def __init__(
        self,
        path: Path,
        schemas: Mapping[str, Sequence[Migration]],
        *,
        now: int,
        logger: Logger,
        once_locked: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the lock, check, then migrate.

        Every `*.sqlite` in the directory is checked. Those in `schemas` are created if absent, and migrated.
        `once_locked` is called before that, and may refuse the directory by raising a `StartError`.
        """
        self.path = path
        with _explained(path):
            created = _make(path)
            try:
                self._lock = DataLock(path)
            except BaseException:
                _unmake(path, created=created)
                raise
            try:
                _probe(path)
                once_locked()
                for name in sorted({*schemas, *(file.name for file in path.glob("*.sqlite"))}):
                    unchecked = examine(path / name, schemas.get(name))
                    if unchecked is not None:
                        logger.warn("store.not_checked", file=name, error=unchecked)
                self._lock.sign(now)
            except BaseException:
                self._lock.abandon()
                _unmake(path, created=created)
                raise
            try:
                for name, migrations in schemas.items():
                    self._migrate(name, migrations, now, logger)
            except BaseException:
                self._lock.release()
                raise
        databases = [path / name for name in schemas]
        logs = [file.with_name(file.name + suffix) for file in databases for suffix in ("-wal", "-shm")]
        self._files = KnownFiles([path, *databases, path / LOCK_NAME], logs)

    def _migrate(self, name: str, migrations: Sequence[Migration], now: int, logger: Logger) -> None:
        file = self.path / name
        if not file.exists():
            sqlite_file.create(file)
        with closing(sqlite_file.connect(file)) as connection:
            for migration in migrate(connection, migrations, name, now=now):
                logger.info("migration.applied", file=name, migration=migration.name)

    def fault(self) -> FileFault | None:
        """A file that was deleted or replaced since this process opened it. Cheap enough for every second."""
        file = self._files.changed()
        if file is None:
            return None
        changed = f"{file} was deleted or replaced while Tocsin was running"
        if file.name == LOCK_NAME:
            return FileFault(file, f"{changed}. Restart Tocsin, which creates a new one", loses_writes=False)
        return FileFault(
            file,
            f"{changed}, so everything written from now on would be lost. Put the same file back with mv, "
            "or stop Tocsin, restore a backup and start it again",
            loses_writes=True,
        )

    def close(self) -> None:
        """Release the lock. Close the databases first."""
        self._lock.release()


def _make(path: Path) -> bool:
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        return False
    return True


def _unmake(path: Path, *, created: bool) -> None:
    if created:
        with suppress(OSError):  # another process may have started to use it
            path.rmdir()


def try_to_write(path: Path) -> None:
    """Raise if the disk of this directory cannot be written. Leaves nothing behind."""
    with _explained(path):
        _probe(path)


def _probe(path: Path) -> None:
    """Write to a file without a name, which cannot be left behind."""
    with TemporaryFile(dir=path, buffering=0) as file:
        rest = bytes(FREE_BYTES_MIN)
        while rest:  # a nearly full disk accepts only a part of a write, without an error
            rest = rest[os.write(file.fileno(), rest) :]
        os.fsync(file.fileno())


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cause = _CAUSES.get(error.errno or 0, f"cannot be used: {error.strerror}")
        raise StoreUnusable(f"{_place(error, path)} {cause}") from error
    except sqlite3.Error as error:
        advice = (
            "Restore a backup"
            if is_damage(error)
            else "The data may be intact: see the kernel log (dmesg) for errors of the disk, and start Tocsin again"
        )
        raise StoreUnusable(
            f"{path} contains a database that cannot be opened ({error}). {advice}"
        ) from error


def _place(error: OSError, directory: Path) -> Path:
    """The file in the directory that the error is about, or the directory."""
    file = Path(str(error.filename))
    if file.parent != directory or not os.path.lexists(file):
        return directory
    return file if file.suffix == ".sqlite" or error.errno in _OF_ONE_FILE else directory
