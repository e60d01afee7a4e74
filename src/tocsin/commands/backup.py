"""`tocsin backup`, `verify` and `restore`: all databases of a data directory at one instant, in one file.

A backup is a tar with `manifest.json` first, then the databases that it lists, with their hashes and rows. Anything
else is refused: a file is extracted only if the manifest has its name and the name is a plain database name, so a path
with `..`, a link or a device is never followed. The service may be running while a backup is made.

A restore writes into the directory itself, which may be a mount point or below a directory of another user. It moves
the old files into a directory beside the new ones. Until the last file is in place, the directory holds an empty
database named MARKER, and the service refuses to start: an interrupted restore cannot be mistaken for a complete one.
"""

import errno
import hashlib
import io
import json
import os
import re
import sqlite3
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from holdfast.errors import SchemaMismatch, StartError, StoreUnavailable, UsageError
from holdfast.local.data_dir import LOCK_NAME, DataLock, is_in_use
from holdfast.local.migrations import Migration, check, last_applied
from holdfast.local.snapshot import copy, one_instant, row_counts
from holdfast.local.sqlite_file import connect_to_read, sync_directory
from tocsin import __version__
from tocsin.commands.files import CLOUDFLARE_BACKUP, DB_FILE, KV_FILE, OBJECTS_FILE, load_migrations, read_settings
from tocsin.errors import FileRefused, MalformedShape
from tocsin.shape import Shape

FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_BYTES_MAX = 1_000_000
BLOCK_BYTES = 1024 * 1024
MARKER = "restore-unfinished.sqlite"
# Locked in this order. The event loop itself writes the objects' database, so it must never wait.
LOCK_ORDER = (DB_FILE, KV_FILE, OBJECTS_FILE)

_DATABASE = re.compile(r"[a-z0-9][a-z0-9_-]{0,60}\.sqlite")
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class BackupFile(Shape):
    """One database. `migration` is the last one that was applied to it, null before the first."""

    bytes: int
    sha256: str
    migration: str | None
    rows: dict[str, int]  # by table


@dataclass(frozen=True, slots=True)
class BackupManifest(Shape):
    """`format` is the layout of the archive, `version` the release that made it, `taken_at` the time of its data."""

    format: int
    version: str
    taken_at: int
    files: dict[str, BackupFile]


def backup(destination: Path | None, *, data_dir: Path | None, clock: Callable[[], int]) -> tuple[Path, BackupManifest]:
    """Write a backup that appears complete or not at all. Returns its path and its manifest."""
    directory = Path(read_settings(data_dir=data_dir).data_dir)
    databases = _databases(directory)
    target = _target(destination, directory, clock())
    try:
        with TemporaryDirectory(prefix=".tocsin-backup-", dir=target.parent) as made:
            manifest = _copy_all(databases, Path(made), clock)
            draft = Path(made) / target.name
            write(draft, manifest, {name: Path(made) / name for name in manifest.files})
            if os.path.lexists(target):
                raise _exists(target)
            draft.rename(target)
            sync_directory(target.parent)
    except sqlite3.Error as error:
        raise FileRefused(f"{directory} cannot be backed up ({error}). To find out why: tocsin doctor") from error
    except StoreUnavailable as error:
        raise FileRefused(f"No backup was made: {error}.") from error
    except OSError as error:
        raise FileRefused(f"No backup was made: {error.filename or target}: {error.strerror or error}.") from error
    return target, manifest


def _databases(directory: Path) -> list[Path]:
    """Every database of the directory, in the order in which they are locked."""
    missing = [name for name in LOCK_ORDER if not (directory / name).is_file()]
    if missing:
        raise UsageError(f"There is no {' and no '.join(missing)} in {directory}: set --data-dir. {CLOUDFLARE_BACKUP}.")
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
            with copied.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[path.name] = BackupFile(copied.stat().st_size, digest, migration, rows)
    return BackupManifest(FORMAT, __version__, taken_at, files)


def verify(archive: Path) -> BackupManifest:
    """Read a whole backup and check it. Raises `FileRefused` with the problem; returns the manifest."""
    with TemporaryDirectory(prefix="tocsin-verify-") as made:
        return _unpack_checked(archive, Path(made))


def restore(archive: Path, *, data_dir: Path | None, force: bool, now: int) -> tuple[Path, BackupManifest, Path | None]:
    """Verify, then put the databases in place. Returns the data directory, and the new place of the old files."""
    directory = Path(read_settings(data_dir=data_dir).data_dir)
    created = _prepare(directory, force=force)
    try:
        with TemporaryDirectory(prefix=".tocsin-restore-", dir=directory) as made:
            manifest = _unpack_checked(archive, Path(made))
            aside = _switch(directory, Path(made), list(manifest.files), now)
    except (OSError, FileRefused, UsageError) as error:
        if created:
            with suppress(OSError):
                directory.rmdir()
        if isinstance(error, OSError):
            raise FileRefused(f"{error.filename or directory}: {error.strerror or error}.") from error
        raise
    return directory, manifest, aside


def _unpack_checked(archive: Path, into: Path) -> BackupManifest:
    if not archive.is_file():
        raise UsageError(f"{archive} is not a file. Give a backup: a .tar made by `tocsin backup`.")
    manifest = unpack(archive, into)
    schemas = load_migrations()
    missing = sorted(schemas.keys() - manifest.files.keys())
    if missing:
        raise _refused(archive, f"it lists no {', '.join(missing)}")
    for name, expected in manifest.files.items():
        fault = _fault(into / name, schemas.get(name), expected.rows)
        if fault is not None:
            raise _refused(archive, f"{name}: {fault}")
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
    except (SchemaMismatch, sqlite3.Error) as error:
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
        raise FileRefused(f"{directory} cannot be created: {error.strerror}.") from error
    else:
        return True
    if is_in_use(directory):
        raise FileRefused(f"{directory} is in use by a running service. Stop it first, then restore.")
    there = [entry.name for entry in directory.iterdir() if entry.name not in {LOCK_NAME, "lost+found"}]
    if there and not force:
        raise FileRefused(
            f"{directory} is not empty ({', '.join(sorted(there)[:3])}). Use --force to move its databases aside "
            "and restore, or choose another directory with --data-dir."
        )
    return False


def _switch(directory: Path, unpacked: Path, names: list[str], now: int) -> Path | None:
    """Move the old databases aside and the new ones in, under the lock that a start needs."""
    try:
        lock = DataLock(directory)
    except StartError as error:
        raise FileRefused(f"{error}.") from error
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


def write(path: Path, manifest: BackupManifest, databases: Mapping[str, Path]) -> None:
    """Write the archive to a new file that only this user can read, and make it survive a power cut."""
    text = json.dumps(manifest.to_json(), indent=2).encode() + b"\n"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            archive.addfile(_member(MANIFEST, len(text), manifest), io.BytesIO(text))
            for name, database in databases.items():
                with database.open("rb") as content:
                    archive.addfile(_member(name, database.stat().st_size, manifest), content)
        file.flush()
        os.fsync(file.fileno())


def _member(name: str, size: int, manifest: BackupManifest) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o600, manifest.taken_at // 1000
    return member


def unpack(path: Path, into: Path) -> BackupManifest:
    """Write the databases of an archive into a directory. Raises unless they match its manifest exactly."""
    try:
        with tarfile.open(path, "r:") as archive:
            manifest = _read_manifest(path, archive)
            members = archive.getmembers()[1:]
            sizes = {name: file.bytes for name, file in manifest.files.items()}
            if len(members) != len(sizes) or {each.name: each.size for each in members if each.isreg()} != sizes:
                raise _refused(path, "it does not contain exactly the files that its manifest lists")
            for member in members:
                _unpack_one(path, archive, member, into / member.name, manifest.files[member.name].sha256)
            return manifest
    except tarfile.TarError as error:
        raise _refused(path, f"it is not a tar archive, or it is truncated ({error})") from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise FileRefused(
                f"{path} was not checked: there is no room to unpack it into {into} ({error.strerror}). "
                "Free some, or for `tocsin verify` set TMPDIR to a larger directory."
            ) from error
        raise FileRefused(f"{path} cannot be read: {error.strerror or error}.") from error


def _read_manifest(path: Path, archive: tarfile.TarFile) -> BackupManifest:
    member = archive.next()
    if member is None or member.name != MANIFEST or not member.isreg():
        raise _refused(path, f"its first file is not {MANIFEST}, so it is not a backup of Tocsin")
    if member.size > MANIFEST_BYTES_MAX:
        raise _refused(path, f"its {MANIFEST} has {member.size:,} bytes")
    try:
        value = json.loads(_content(archive, member).read())
        stored_format = value.get("format") if isinstance(value, dict) else None
        if type(stored_format) is int and stored_format > FORMAT:
            raise FileRefused(
                f"{path} was made by a newer Tocsin (format {stored_format}). Use that release or a later one."
            )
        manifest = BackupManifest.from_json(value)
    except (ValueError, RecursionError, MalformedShape) as error:
        raise _refused(path, f"its {MANIFEST} cannot be read ({error})") from error
    for name in manifest.files:
        if _DATABASE.fullmatch(name) is None:
            raise _refused(path, f"its {MANIFEST} lists {name[:80]!r}, which is not the name of a database")
    return manifest


def _unpack_one(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path, sha256: str) -> None:
    digest, source = hashlib.sha256(), _content(archive, member)
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        while block := source.read(BLOCK_BYTES):
            digest.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != sha256:
        raise _refused(path, f"the content of {member.name} has changed since the backup (its hash differs)")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(member)
    if content is None:  # not a regular file
        raise tarfile.ReadError(f"{member.name} has no content")
    return content


def _refused(path: Path, cause: str) -> FileRefused:
    return FileRefused(f"{path} cannot be used: {cause}. Give another backup.")
