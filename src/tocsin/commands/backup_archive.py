"""The archive of a backup: a tar with `manifest.json` first, then the databases. Anything else is refused.

A file is extracted only if the manifest lists its name and the name is a plain database name, so a path with `..`, a
link or a device is never followed.
"""

import errno
import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tocsin.errors import BackupRefused, MalformedShape
from tocsin.shapes.backup_manifest import BackupManifest

FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_BYTES_MAX = 1_000_000
BLOCK_BYTES = 1024 * 1024

_DATABASE = re.compile(r"[a-z0-9][a-z0-9_-]{0,60}\.sqlite")
_ANOTHER = "Give another backup"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


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
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            manifest = _read_manifest(path, archive)
            found: set[str] = set()
            for member in archive:
                name = member.name
                if name == MANIFEST and member.offset == 0:
                    continue
                if name not in manifest.files or name in found or not member.isreg():
                    raise _refused(
                        path, f"it contains {name[:80]!r}, which its manifest does not list as a file"
                    )
                found.add(name)
                _unpack_one(path, archive, member, into / name, manifest)
    except tarfile.TarError as error:
        raise _refused(path, f"it is not a tar archive, or it is truncated ({error})") from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise BackupRefused(
                f"{path} was not checked: there is no room to unpack it into {into} ({error.strerror}). "
                "Free some, or for `tocsin verify` set TMPDIR to a larger directory."
            ) from error
        raise BackupRefused(f"{path} cannot be read: {error.strerror or error}.") from error
    missing = sorted(manifest.files.keys() - found)
    if missing:
        raise _refused(path, f"{', '.join(missing)} is missing: it is truncated")
    return manifest


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
            raise BackupRefused(
                f"{path} was made by a newer Tocsin (format {stored_format}). Use that release or a later one."
            )
        manifest = BackupManifest.from_json(value)
    except (ValueError, RecursionError, MalformedShape) as error:
        raise _refused(path, f"its {MANIFEST} cannot be read ({error})") from error
    for name in manifest.files:
        if _DATABASE.fullmatch(name) is None:
            raise _refused(path, f"its {MANIFEST} lists {name[:80]!r}, which is not the name of a database")
    return manifest


def _unpack_one(
    path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path, manifest: BackupManifest
) -> None:
    expected = manifest.files[member.name]
    if member.size != expected.bytes:
        raise _refused(path, f"{member.name} has {member.size:,} bytes instead of {expected.bytes:,}")
    digest, source, left = hashlib.sha256(), _content(archive, member), member.size
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        while block := source.read(BLOCK_BYTES):
            digest.update(block)
            file.write(block)
            left -= len(block)
        file.flush()
        os.fsync(file.fileno())
    if left or digest.hexdigest() != expected.sha256:
        raise _refused(path, f"the content of {member.name} has changed since the backup (its hash differs)")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(member)
    if content is None:  # not a regular file
        raise tarfile.ReadError(f"{member.name} has no content")
    return content


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refused(path: Path, cause: str) -> BackupRefused:
    return BackupRefused(f"{path} cannot be used: {cause}. {_ANOTHER}.")
