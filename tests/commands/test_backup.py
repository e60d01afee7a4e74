"""Backup, verify and restore on files: what is refused and why, and that nothing is lost or overwritten."""

import io
import json
import os
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.captured_log import CapturedLog
from tocsin.commands.backup import backup
from tocsin.commands.data_files import load_migrations
from tocsin.commands.restore import restore, verify
from tocsin.errors import BackupRefused, StartError, TocsinError, UsageError
from tocsin.platform.local.sqlite import sqlite_file
from tocsin.platform.local.sqlite.data_dir import DataDir

NOW = 1_778_700_600_000
SAVED = "tocsin-20260513T193000Z.tar"


def data_dir(path: Path, value: str = "first") -> Path:
    """A data directory with one entry, as a stopped service leaves it."""
    DataDir(path, load_migrations(), now=NOW, logger=CapturedLog()).close()
    put(path, value)
    return path


def put(path: Path, value: str) -> None:
    with closing(sqlite_file.connect(path / "kv.sqlite")) as kv:
        kv.execute("INSERT OR REPLACE INTO entries (key, value) VALUES ('key', ?)", (value,))


def value_in(path: Path) -> str:
    with closing(sqlite3.connect(path / "kv.sqlite")) as kv:
        (value,) = kv.execute("SELECT value FROM entries WHERE key = 'key'").fetchone()
    return str(value)


def saved(tmp_path: Path, data: Path) -> Path:
    target, _ = backup(tmp_path, data_dir=data, clock=lambda: NOW)
    return target


def repacked(archive: Path, target: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The same archive, with its members changed: by name, a TarInfo and its bytes."""
    with tarfile.open(archive) as old:
        members: dict[str, Any] = {member.name: [member, _bytes(old, member)] for member in old}
    change(members)
    with tarfile.open(target, "w") as new:
        for member, content in members.values():
            member.size = len(content) if member.isreg() else 0
            new.addfile(member, io.BytesIO(content))
    return target


def _bytes(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    content = archive.extractfile(member)
    assert content is not None
    return content.read()


def test_a_backup_is_one_private_file_that_describes_itself(tmp_path: Path) -> None:
    """Hashes, rows, the newest migration of each database, and the time; and nothing else is left behind."""
    target = saved(tmp_path, data_dir(tmp_path / "data"))

    with tarfile.open(target) as archive:
        names = archive.getnames()
        manifest = json.loads(_bytes(archive, archive.getmembers()[0]))
    assert target == tmp_path / SAVED
    assert target.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", SAVED]
    assert names == ["manifest.json", "objects.sqlite", "kv.sqlite", "db.sqlite"]
    assert (manifest["format"], manifest["takenAt"]) == (1, NOW)
    assert manifest["files"]["kv.sqlite"]["rows"] == {"entries": 1, "tocsin_migrations": 1}
    assert manifest["files"]["kv.sqlite"]["migration"] == "0001_create_entries"
    assert len(manifest["files"]["db.sqlite"]["sha256"]) == 64


def test_a_restored_directory_starts_with_what_was_saved(tmp_path: Path) -> None:
    """Restored into a directory that did not exist; later writes are not in it."""
    data = data_dir(tmp_path / "data")
    target = saved(tmp_path, data)
    put(data, "later")

    directory, manifest, aside = restore(target, data_dir=tmp_path / "new", force=False, now=NOW)
    DataDir(directory, load_migrations(), now=NOW, logger=CapturedLog()).close()

    assert (value_in(directory), aside, manifest.taken_at) == ("first", None, NOW)
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def test_a_directory_with_data_is_kept_and_moved_aside_by_force(tmp_path: Path) -> None:
    """Without --force nothing changes; with it the old databases and their logs are still there."""
    data = data_dir(tmp_path / "data")
    target = saved(tmp_path, data)
    put(data, "later")
    before = {path.name: path.read_bytes() for path in data.iterdir()}

    with pytest.raises(BackupRefused, match=r"is not empty \(db.sqlite, kv.sqlite.*--force"):
        restore(target, data_dir=data, force=False, now=NOW)
    untouched = {path.name: path.read_bytes() for path in data.iterdir()}
    _, _, aside = restore(target, data_dir=data, force=True, now=NOW)

    assert untouched == before
    assert aside == data / "before-restore-20260513T193000Z"
    assert (value_in(data), value_in(aside)) == ("first", "later")


def test_a_restore_waits_for_no_service(tmp_path: Path) -> None:
    """It is refused while a process holds the directory, even with --force."""
    data = data_dir(tmp_path / "data")
    target = saved(tmp_path, data)
    held = DataDir(data, load_migrations(), now=NOW, logger=CapturedLog())
    with pytest.raises(BackupRefused, match=r"in use by a running service. Stop it first"):
        restore(target, data_dir=data, force=True, now=NOW)
    held.close()


def test_a_restore_that_was_cut_off_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two files: the start refuses, and a second restore fixes it."""
    data = data_dir(tmp_path / "data")
    target = saved(tmp_path, data)
    rename, left = Path.rename, iter([True, False])

    def cut_off(self: Path, to: Path) -> Path:
        if self.parent.name.startswith(".tocsin-restore-") and not next(left):
            raise KeyboardInterrupt
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", cut_off)
    with pytest.raises(KeyboardInterrupt):
        restore(target, data_dir=tmp_path / "new", force=False, now=NOW)
    monkeypatch.undo()
    with pytest.raises(StartError, match=r"restore-unfinished.sqlite is empty"):
        DataDir(tmp_path / "new", load_migrations(), now=NOW, logger=CapturedLog())
    restore(target, data_dir=tmp_path / "new", force=True, now=NOW)
    DataDir(tmp_path / "new", load_migrations(), now=NOW, logger=CapturedLog()).close()

    assert value_in(tmp_path / "new") == "first"


def test_a_backup_of_an_older_release_is_restored_and_migrated_at_the_start(tmp_path: Path) -> None:
    """A schema without the newest migrations is fine; one that is newer than this release is not."""
    older = {name: migrations[:1] for name, migrations in load_migrations().items()}
    DataDir(tmp_path / "old", older, now=NOW, logger=CapturedLog()).close()
    target = saved(tmp_path, tmp_path / "old")

    directory, manifest, _ = restore(target, data_dir=tmp_path / "new", force=False, now=NOW)
    log = CapturedLog()
    DataDir(directory, load_migrations(), now=NOW, logger=log).close()

    assert manifest.files["db.sqlite"].migration == "0001_create_competition"
    assert "migration.applied" in str(log.lines)
    with closing(sqlite_file.connect(directory / "db.sqlite")) as db:
        db.execute("INSERT INTO tocsin_migrations VALUES (99, '0099_from_the_future', 'x', 1)")
    newer, _ = backup(tmp_path / "newer.tar", data_dir=directory, clock=lambda: NOW)
    with pytest.raises(BackupRefused, match=r"db.sqlite is newer than this code"):
        verify(newer)


def _link(members: dict[str, Any]) -> None:
    members["kv.sqlite"][0].type, members["kv.sqlite"][0].linkname = tarfile.SYMTYPE, "/etc/passwd"


def _climb(members: dict[str, Any]) -> None:
    members["../evil"] = [tarfile.TarInfo("../evil"), b"x"]


def _listed_climb(members: dict[str, Any]) -> None:
    manifest = json.loads(members["manifest.json"][1])
    manifest["files"]["../evil.sqlite"] = manifest["files"]["kv.sqlite"]
    members["manifest.json"][1] = json.dumps(manifest).encode()


def _newer(members: dict[str, Any]) -> None:
    manifest = json.loads(members["manifest.json"][1])
    members["manifest.json"][1] = json.dumps({**manifest, "format": 2, "files": []}).encode()


def _flip(members: dict[str, Any]) -> None:
    content = bytearray(members["db.sqlite"][1])
    content[5000] ^= 1
    members["db.sqlite"][1] = bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_link, "'kv.sqlite', which its manifest does not list as a file"),
        (_climb, "'../evil', which its manifest does not list as a file"),
        (_listed_climb, "'../evil.sqlite', which is not the name of a database"),
        (_newer, r"made by a newer Tocsin \(format 2\)"),
        (_flip, "content of db.sqlite has changed since the backup"),
        (lambda members: members.pop("kv.sqlite"), "kv.sqlite is missing: it is truncated"),
        (lambda members: members.pop("manifest.json"), "its first file is not manifest.json"),
        (lambda members: members.clear(), "its first file is not manifest.json"),
        (
            lambda members: members["manifest.json"].__setitem__(1, b"[" * 9000),
            "manifest.json cannot be read",
        ),
        (lambda members: members["manifest.json"].__setitem__(1, b"{}"), "format is missing"),
    ],
)
def test_a_foreign_or_damaged_archive_is_refused_and_nothing_is_written(
    change: Callable[[dict[str, Any]], object], sentence: str, tmp_path: Path
) -> None:
    """Every refusal names the archive and the cause, and no data directory is created."""
    target = repacked(saved(tmp_path, data_dir(tmp_path / "data")), tmp_path / "bad.tar", change)

    with pytest.raises(BackupRefused, match=sentence):
        verify(target)
    with pytest.raises(BackupRefused, match=sentence):
        restore(target, data_dir=tmp_path / "new", force=False, now=NOW)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tar", "data", SAVED]


def test_an_archive_that_is_cut_anywhere_is_refused(tmp_path: Path) -> None:
    """A truncated copy is never taken for a complete one, wherever it ends."""
    target = saved(tmp_path, data_dir(tmp_path / "data"))
    content = target.read_bytes()
    with tarfile.open(target) as archive:
        last = archive.getmembers()[-1]
    end = last.offset_data + last.size
    cut = tmp_path / "cut.tar"
    for length in [0, 1, 511, 512, 513, *range(1024, end, 16_001), end - 1]:
        cut.write_bytes(content[:length])
        with pytest.raises(BackupRefused, match=r"cut.tar cannot be used"):
            verify(cut)


@pytest.mark.parametrize(
    ("destination", "data", "sentence"),
    [
        ("nowhere/x.tar", "data", "is not a directory. Make it first"),
        ("data", "data", "would be lost with it"),
        ("there.tar", "data", "there.tar already exists"),
        (".", "nowhere", "There is no db.sqlite and no kv.sqlite.*Cloudflare.*time-travel"),
    ],
)
def test_a_backup_that_cannot_be_made_says_why(
    destination: str, data: str, sentence: str, tmp_path: Path
) -> None:
    """No file is overwritten and none is left."""
    data_dir(tmp_path / "data")
    (tmp_path / "there.tar").write_text("mine")

    with pytest.raises(UsageError, match=sentence):
        backup(tmp_path / destination, data_dir=tmp_path / data, clock=lambda: NOW)
    assert (tmp_path / "there.tar").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "there.tar"]


def test_a_damaged_database_is_not_backed_up(tmp_path: Path) -> None:
    """An error, not a backup that cannot be restored."""
    data = data_dir(tmp_path / "data")
    (data / "kv.sqlite").write_bytes(b"not a database" * 1000)

    with pytest.raises(BackupRefused, match="cannot be backed up"):
        backup(tmp_path, data_dir=data, clock=lambda: NOW)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("name", ["nowhere.tar", "."])
def test_what_is_not_a_file_is_no_backup(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a file. Give a backup"):
        verify(tmp_path / name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_restores_for_the_owner_of_the_directory(tmp_path: Path) -> None:
    """The service runs as another user and must be able to open what root restored."""
    target = saved(tmp_path, data_dir(tmp_path / "data"))
    (tmp_path / "new").mkdir()
    os.chown(tmp_path / "new", 1234, 1234)

    restore(target, data_dir=tmp_path / "new", force=False, now=NOW)

    assert {path.stat().st_uid for path in (tmp_path / "new").iterdir()} == {1234}


def test_all_refusals_are_sentences_for_the_command(tmp_path: Path) -> None:
    """The command prints Tocsin's own errors; anything else would be a traceback."""
    assert issubclass(BackupRefused, TocsinError)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is not a directory"):
        restore(tmp_path / "x.tar", data_dir=tmp_path / "file", force=False, now=NOW)
    with pytest.raises(UsageError, match="mkdir -p"):
        restore(tmp_path / "x.tar", data_dir=tmp_path / "a" / "b", force=False, now=NOW)
