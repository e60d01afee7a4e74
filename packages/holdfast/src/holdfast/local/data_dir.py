"""The data directory: locked, checked and migrated, or refused with the cause and the fix.

A refused start leaves every byte of the directory as it was: the lock is not signed, the checks only read,
the file that probes for space has no name, and no database is opened before all checks have passed.

The lock is an flock on the directory itself, which the kernel releases when its holder ends. Nobody can bypass it by
deleting a file: a directory cannot be replaced without losing its files.

While the process runs, `DataDir.fault` compares each path with the open file. SQLite keeps writing to a deleted file:
everything seems to work, but nothing survives the process.
"""

import errno
import fcntl
import json
import os
import socket
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile

from holdfast.errors import DataDirInUse, StoreUnusable
from holdfast.local import sqlite_file
from holdfast.local.migrations import Migration, migrate
from holdfast.local.store_check import examine, is_damage
from holdfast.types import Logger

# Tells the next process who holds the lock. It is written after the checks, and removed again if a refused start
# created it. The name is older than this package.
LOCK_NAME = "tocsin.lock"
HOLDER_BYTES_MAX = 1000
FREE_BYTES_MIN = 1024 * 1024  # free space that a start requires

_CAUSES = {
    errno.EACCES: "is not writable by this user. Make the user that runs this program its owner (chown)",
    errno.EDQUOT: "has no space left under this user's quota. Free some, or choose another directory",
    errno.EIO: "is on a disk that reports an error. See the kernel log (dmesg), and start again when the disk works",
    errno.ELOOP: "is a symbolic link, and its target would be overwritten. Remove the link",
    errno.ENOENT: "cannot be created: its parent directory does not exist. Create that first (mkdir -p)",
    errno.ENOSPC: "is on a full disk. Free some space, or choose another directory",
    errno.ENOTDIR: "is not a directory. Choose a directory",
    errno.EPERM: "is write-protected (see lsattr). Remove the protection, or choose another directory",
    errno.EROFS: "is on a read-only file system. Mount it writable, or choose another directory",
}

_OF_ONE_FILE = frozenset((errno.EACCES, errno.ELOOP, errno.EPERM))

# EBADF: some network file systems lock only files that are open for writing.
_NO_LOCKS = frozenset((errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP))


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
        with _explained(path), ExitStack() as undo:
            if _make(path):
                undo.callback(_remove_if_empty, path)
            self._lock = DataLock(path)
            undo.callback(self._lock.abandon)
            _probe(path)
            once_locked()
            for name in sorted({*schemas, *(file.name for file in path.glob("*.sqlite"))}):
                unchecked = examine(path / name, schemas.get(name))
                if unchecked is not None:
                    logger.warning("store.not_checked", file=name, error=unchecked)
            self._lock.sign(now)
            undo.pop_all()
            undo.callback(self._lock.release)
            for name, migrations in schemas.items():
                self._migrate(name, migrations, now, logger)
            undo.pop_all()
        databases = [path / name for name in schemas]
        self._known = {file: _identity(file) for file in [path, *databases, path / LOCK_NAME]}
        self._logs = [file.with_name(file.name + suffix) for file in databases for suffix in ("-wal", "-shm")]

    def _migrate(self, name: str, migrations: Sequence[Migration], now: int, logger: Logger) -> None:
        file = self.path / name
        if not file.exists():
            sqlite_file.create(file)
        with closing(sqlite_file.connect(file)) as connection:
            for migration in migrate(connection, migrations, name, now=now):
                logger.info("migration.applied", file=name, migration=migration.name)

    def fault(self) -> FileFault | None:
        """A file that was deleted or replaced since this process opened it. Costs one stat per file."""
        for log in self._logs:  # SQLite creates it later
            if log not in self._known and (identity := _identity(log)) is not None:
                self._known[log] = identity
        file = next((file for file, known in self._known.items() if _identity(file) != known), None)
        if file is None:
            return None
        changed = f"{file} was deleted or replaced while this program was running"
        if file.name == LOCK_NAME:
            return FileFault(file, f"{changed}. Restart the program, which creates a new one", loses_writes=False)
        return FileFault(
            file,
            f"{changed}, so everything written from now on would be lost. Put the same file back with mv, "
            "or stop the program, restore a backup and start it again",
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


def _remove_if_empty(path: Path) -> None:
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
            else "The data may be intact: see the kernel log (dmesg) for errors of the disk, and start again"
        )
        raise StoreUnusable(f"{path} contains a database that cannot be opened ({error}). {advice}") from error


def _place(error: OSError, directory: Path) -> Path:
    """The file in the directory that the error is about, or the directory."""
    file = Path(str(error.filename))
    if file.parent != directory or not os.path.lexists(file):
        return directory
    return file if file.suffix == ".sqlite" or error.errno in _OF_ONE_FILE else directory


class DataLock:
    """The lock on a directory, held until `release`, `abandon` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        """Take the lock, or raise `DataDirInUse` naming its holder."""
        self._directory = directory
        self._path = directory / LOCK_NAME
        self._directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._lock(self._directory_fd)
            self._fd, self._created = _open(self._path)
        except BaseException:
            os.close(self._directory_fd)
            raise

    def _lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataDirInUse(
                f"{self._directory} is in use by {_holder(self._path)}. Stop that process, or choose another directory"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            raise StoreUnusable(
                f"{self._directory} is on a file system without locks. Choose a directory on a local disk"
            ) from error

    def sign(self, now: int) -> None:
        """Write which process holds the lock, since when, and on which host."""
        holder = {"pid": os.getpid(), "startedAt": now, "host": socket.gethostname()}
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(holder).encode() + b"\n", 0)

    def abandon(self) -> None:
        """Release the lock and undo what taking it changed."""
        if self._created:
            self._path.unlink()
        self._close()

    def release(self) -> None:
        os.ftruncate(self._fd, 0)
        self._close()

    def _close(self) -> None:
        os.close(self._fd)
        os.close(self._directory_fd)


def is_in_use(directory: Path) -> bool:
    """Whether a process holds the directory now."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: the start will report it
        return False
    finally:
        os.close(fd)
    return False


def _open(path: Path) -> tuple[int, bool]:
    """The open file, and whether this call created it. It is never a link: its target would be overwritten."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), True
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW), False


def _holder(path: Path) -> str:
    """The holder, in words. The text may be from an earlier holder, if the current one has not signed yet."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return f"another process ({path.name}, which names it, cannot be read)"
    try:
        text = os.pread(fd, HOLDER_BYTES_MAX, 0)
    finally:
        os.close(fd)
    try:
        holder = json.loads(text)
        pid, host = int(holder["pid"]), str(holder["host"])
        since = datetime.fromtimestamp(holder["startedAt"] / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, KeyError, TypeError, OverflowError):
        return "another process that is just starting"
    if host == socket.gethostname() and not _alive(pid):
        return "another process that is just starting"
    return f"process {pid} on {host}, started {since}"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode, or None if the path leads nowhere. While a file is open, no other one gets its inode."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
