"""One process per data directory: an flock on the directory itself, which the kernel releases when its holder ends.

A directory cannot be deleted and created again under the same name without losing all its files, so nobody can bypass
the lock by deleting a file. `tocsin.lock` is locked too, because releases before 0.2.0 lock only that. Its text is for
the error message of the next process. It is written after the checks have passed, so that a refused start changes
nothing. A lock file that a refused start created is removed again.
"""

import errno
import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from tocsin.errors import DataDirInUse, StoreUnusable

LOCK_NAME = "tocsin.lock"
HOLDER_BYTES_MAX = 1000

# EBADF: some network file systems lock only files that are open for writing.
_NO_LOCKS = frozenset((errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP))


class DataLock:
    """The lock on a directory, held until `release`, `abandon` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        """Take the lock, or raise `DataDirInUse` naming its holder."""
        self._directory = directory
        self._path = directory / LOCK_NAME
        self._directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._lock(self._directory_fd)
            self._fd = self._take_file()
        except BaseException:
            os.close(self._directory_fd)
            raise

    def _take_file(self) -> int:
        while True:
            fd, self._created = _open(self._path)
            try:
                self._lock(fd)
            except BaseException:
                os.close(fd)
                raise
            if _same_file(fd, self._path):
                return fd
            os.close(fd)  # a refused start removed it between our two calls: lock the new one

    def _lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataDirInUse(
                f"{self._directory} is in use by {_holder(self._path)}. Stop that process, or choose another "
                "directory with --data-dir"
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
    while True:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), True
        except FileExistsError:
            pass
        try:
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW), False
        except FileNotFoundError:
            pass


def _same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


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
