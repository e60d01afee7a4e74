"""Backup, verify and restore on files: what is refused and why, and that nothing is lost or overwritten."""

import errno
import io
import json
import os
import resource
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import chdir, closing
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from holdfast.errors import HoldfastError, StartError, UsageError
from holdfast.local import sqlite_file
from holdfast.local.data_dir import DataDir, is_in_use
from holdfast.local.migrations import load
from holdfast.local.snapshot import one_instant
from holdfast.types import DurableObject
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.objects import objects
from support.tocsin_command import tocsin_here
from tocsin.commands.backup import backup, restore, verify
from tocsin.commands.files import load_migrations
from tocsin.errors import FileRefused
from tocsin.swaps import COMPETITION_MIGRATIONS

NOW = 1_778_700_600_000
SAVED = "tocsin-20260513T193000Z.tar"


def opened(path: Path) -> DataDir:
    return DataDir(path, load_migrations(), now=NOW, logger=CapturedLog())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one entry, as a stopped service leaves it."""
    opened(tmp_path / "data").close()
    put(tmp_path / "data", "first")
    return tmp_path / "data"


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


@pytest.fixture
def target(tmp_path: Path, data: Path) -> Path:
    """A backup of the directory."""
    return saved(tmp_path, data)


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


def test_a_backup_is_one_private_file_that_describes_itself(tmp_path: Path, target: Path) -> None:
    """Hashes, rows, the newest migration of each database, and the time; and nothing else is left behind."""
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


def test_a_restored_directory_starts_with_what_was_saved(tmp_path: Path, data: Path, target: Path) -> None:
    """Restored into a directory that did not exist; later writes are not in it."""
    put(data, "later")

    directory, manifest, aside = restore(target, data_dir=tmp_path / "new", force=False, now=NOW)
    opened(directory).close()

    assert (value_in(directory), aside, manifest.taken_at) == ("first", None, NOW)
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    assert directory.stat().st_mode & 0o777 == 0o700


def test_a_directory_with_data_is_kept_and_moved_aside_by_force(data: Path, target: Path) -> None:
    """Without --force nothing changes; with it the old databases and their logs are still there."""
    put(data, "later")
    before = {path.name: path.read_bytes() for path in data.iterdir()}

    with pytest.raises(FileRefused, match=r"is not empty \(db.sqlite, kv.sqlite.*--force"):
        restore(target, data_dir=data, force=False, now=NOW)
    untouched = {path.name: path.read_bytes() for path in data.iterdir()}
    _, _, aside = restore(target, data_dir=data, force=True, now=NOW)

    assert untouched == before
    assert aside == data / "before-restore-20260513T193000Z"
    assert (value_in(data), value_in(aside)) == ("first", "later")


def test_a_restore_waits_for_no_service(data: Path, target: Path) -> None:
    """It is refused while a process holds the directory, even with --force."""
    held = opened(data)
    with pytest.raises(FileRefused, match=r"in use by a running service. Stop it first"):
        restore(target, data_dir=data, force=True, now=NOW)
    held.close()


@pytest.mark.parametrize(
    ("after", "force"), [("data", True), ("before-restore-20260513T193000Z", True), ("new", False)]
)
def test_a_restore_that_was_cut_off_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str, force: bool, data: Path, target: Path
) -> None:
    """Killed after one old file is aside, or one new file is in: the start refuses, and a second restore fixes it."""
    rename, directory = Path.rename, data if force else tmp_path / "new"

    def cut_off(self: Path, to: Path) -> None:
        rename(self, to)
        if to.parent.name == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", cut_off)
    with pytest.raises(KeyboardInterrupt):
        restore(target, data_dir=directory, force=force, now=NOW)
    monkeypatch.undo()
    with pytest.raises(StartError, match=r"restore-unfinished.sqlite is empty"):
        opened(directory)
    restore(target, data_dir=directory, force=True, now=NOW + 1000)
    opened(directory).close()

    assert value_in(directory) == "first"


def test_a_backup_of_an_older_release_is_restored_and_migrated_at_the_start(tmp_path: Path) -> None:
    """A schema without the newest migrations is fine; one that is newer than this release is not."""
    DataDir(tmp_path / "old", load_migrations(), now=NOW, logger=CapturedLog()).close()
    target = saved(tmp_path, tmp_path / "old")
    migrations = tmp_path / "sql"
    copytree(COMPETITION_MIGRATIONS, migrations)
    (migrations / "0002_add_fans.sql").write_text("CREATE TABLE fans (name TEXT);")

    directory, manifest, _ = restore(target, data_dir=tmp_path / "new", force=False, now=NOW)
    log = CapturedLog()
    DataDir(directory, load_migrations() | {"db.sqlite": load(migrations)}, now=NOW, logger=log).close()

    assert manifest.files["db.sqlite"].migration == "0001_create"
    assert "migration.applied" in str(log.lines)
    with closing(sqlite_file.connect(directory / "db.sqlite")) as db:
        db.execute("INSERT INTO tocsin_migrations VALUES (99, '0099_from_the_future', 'x', 1)")
    newer, _ = backup(tmp_path / "newer.tar", data_dir=directory, clock=lambda: NOW)
    with pytest.raises(FileRefused, match=r"db.sqlite is newer than this code"):
        verify(newer)


def _link(members: dict[str, Any]) -> None:
    members["kv.sqlite"][0].type, members["kv.sqlite"][0].linkname = tarfile.SYMTYPE, "/etc/passwd"


def _climb(members: dict[str, Any]) -> None:
    members["../evil"] = [tarfile.TarInfo("../evil"), b"x"]


def _manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], None]:
    """Change the manifest only."""

    def changed(members: dict[str, Any]) -> None:
        manifest = json.loads(members["manifest.json"][1])
        change(manifest)
        members["manifest.json"][1] = json.dumps(manifest).encode()

    return changed


def _flip(members: dict[str, Any]) -> None:
    content = bytearray(members["db.sqlite"][1])
    content[5000] ^= 1
    members["db.sqlite"][1] = bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_link, "it does not contain exactly the files that its manifest lists"),
        (_climb, "it does not contain exactly the files that its manifest lists"),
        (
            _manifest(lambda manifest: manifest["files"].update({"../evil.sqlite": manifest["files"]["kv.sqlite"]})),
            "'../evil.sqlite', which is not the name of a database",
        ),
        (_manifest(lambda manifest: manifest.update(format=2, files=[])), r"made by a newer Tocsin \(format 2\)"),
        (
            _manifest(lambda manifest: manifest["files"]["kv.sqlite"]["rows"].update(entries=2)),
            "kv.sqlite: its tables do not have the rows that the manifest",
        ),
        (_flip, "content of db.sqlite has changed since the backup"),
        (lambda members: members.pop("kv.sqlite"), "not contain exactly the files that its manifest"),
        (lambda members: members.pop("manifest.json"), "its first file is not manifest.json"),
        (lambda members: members.clear(), "its first file is not manifest.json"),
        (lambda members: members["manifest.json"].__setitem__(1, b"[" * 9000), "manifest.json cannot be read"),
        (lambda members: members["manifest.json"].__setitem__(1, b"{}"), "format is missing"),
    ],
)
def test_a_foreign_or_damaged_archive_is_refused_and_nothing_is_written(
    change: Callable[[dict[str, Any]], object], sentence: str, tmp_path: Path, target: Path
) -> None:
    """Every refusal names the archive and the cause, and no data directory is created."""
    target = repacked(target, tmp_path / "bad.tar", change)

    with pytest.raises(FileRefused, match=sentence):
        verify(target)
    with pytest.raises(FileRefused, match=sentence):
        restore(target, data_dir=tmp_path / "new", force=False, now=NOW)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tar", "data", SAVED]


def test_an_archive_that_is_cut_anywhere_is_refused(tmp_path: Path, target: Path) -> None:
    """A truncated copy is never taken for a complete one, wherever it ends."""
    content = target.read_bytes()
    with tarfile.open(target) as archive:
        last = archive.getmembers()[-1]
    end = last.offset_data + last.size
    cut = tmp_path / "cut.tar"
    for length in [0, 1, 511, 512, 513, *range(1024, end, 16_001), end - 1]:
        cut.write_bytes(content[:length])
        with pytest.raises(FileRefused, match=r"cut.tar cannot be used"):
            verify(cut)


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("destination", "source", "sentence"),
    [
        ("nowhere/x.tar", "data", "is not a directory. Make it first"),
        ("data", "data", "would be lost with it"),
        ("there.tar", "data", "there.tar already exists"),
        (".", "nowhere", "There is no db.sqlite and no kv.sqlite.*Cloudflare.*time-travel"),
        (".", "half", r"There is no kv.sqlite in"),
    ],
)
def test_a_backup_that_cannot_be_made_says_why(destination: str, source: str, sentence: str, tmp_path: Path) -> None:
    """No file is overwritten and none is left."""
    (tmp_path / "there.tar").write_text("mine")
    (tmp_path / "half").mkdir()
    for name in ("db.sqlite", "objects.sqlite"):
        (tmp_path / "half" / name).touch()

    with pytest.raises(UsageError, match=sentence):
        backup(tmp_path / destination, data_dir=tmp_path / source, clock=lambda: NOW)
    assert (tmp_path / "there.tar").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "half", "there.tar"]


def test_a_damaged_database_is_not_backed_up(tmp_path: Path, data: Path) -> None:
    """An error, not a backup that cannot be restored."""
    (data / "kv.sqlite").write_bytes(b"not a database" * 1000)

    with pytest.raises(FileRefused, match="cannot be backed up"):
        backup(tmp_path, data_dir=data, clock=lambda: NOW)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_restores_for_the_owner_of_the_directory(tmp_path: Path, target: Path) -> None:
    """The service runs as another user and must be able to open what root restored."""
    (tmp_path / "new").mkdir()
    os.chown(tmp_path / "new", 1234, 1234)

    restore(target, data_dir=tmp_path / "new", force=False, now=NOW)

    assert {path.stat().st_uid for path in (tmp_path / "new").iterdir()} == {1234}
    _, _, aside = restore(target, data_dir=tmp_path / "new", force=True, now=NOW)
    assert aside is not None
    assert {path.stat().st_uid for path in (aside, *aside.iterdir())} == {1234}


def test_all_refusals_are_sentences_for_the_command(tmp_path: Path) -> None:
    """The command prints Tocsin's own errors; anything else would be a traceback."""
    assert issubclass(FileRefused, HoldfastError)
    (tmp_path / "file").write_text("x")
    for name in ("nowhere.tar", "."):
        with pytest.raises(UsageError, match=r"is not a file. Give a backup"):
            verify(tmp_path / name)
    with pytest.raises(UsageError, match="is not a directory"):
        restore(tmp_path / "x.tar", data_dir=tmp_path / "file", force=False, now=NOW)
    with pytest.raises(UsageError, match="mkdir -p"):
        restore(tmp_path / "x.tar", data_dir=tmp_path / "a" / "b", force=False, now=NOW)


def test_a_script_gets_json(data: Path, tmp_path: Path) -> None:
    """The manifest, and where everything is."""

    def command(*arguments: str) -> Any:
        done = tocsin_here(*arguments, "--json", environment={})
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    file, new = str(tmp_path / "saved.tar"), str(tmp_path / "new")
    saved = command("backup", file, "--data-dir", str(data))
    verified = command("verify", file)
    restored = command("restore", file, "--data-dir", new)

    assert sorted(saved["files"]) == ["db.sqlite", "kv.sqlite", "objects.sqlite"]
    assert saved["file"] == verified["file"] == file
    assert saved == verified
    assert (restored["dataDir"], restored["movedTo"], restored["takenAt"]) == (new, None, saved["takenAt"])


def kill_with_a_log(data: Path, value: str) -> None:
    """Write the value as a process does that is killed then: it is in the log only."""
    connection = sqlite_file.connect(data / "kv.sqlite")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("INSERT OR REPLACE INTO entries (key, value) VALUES ('key', ?)", (value,))
    left = {file: file.read_bytes() for file in data.glob("kv.sqlite*")}
    connection.close()
    for file, content in left.items():
        file.write_bytes(content)


def test_a_killed_service_s_log_does_not_come_back_after_a_restore(data: Path, target: Path) -> None:
    """SQLite would replay it into the restored database, and the operator would get the old data without an error."""
    kill_with_a_log(data, "later")

    _, _, aside = restore(target, data_dir=data, force=True, now=NOW)

    assert sorted(path.name for path in data.iterdir()) == [
        "before-restore-20260513T193000Z",
        "db.sqlite",
        "kv.sqlite",
        "objects.sqlite",
        "tocsin.lock",
    ]
    assert value_in(data) == "first"
    assert aside is not None
    assert value_in(aside) == "later"
    assert aside.stat().st_mode & 0o777 == 0o700


def test_a_backup_has_what_is_only_in_the_log(tmp_path: Path, data: Path) -> None:
    """A killed service is backed up with its latest writes, and stays as it was."""
    kill_with_a_log(data, "later")
    target = saved(tmp_path, data)
    restore(target, data_dir=tmp_path / "new", force=False, now=NOW)

    assert value_in(tmp_path / "new") == "later"


def test_a_backup_and_a_restore_survive_a_power_cut(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is synced before the next: the mark, the files that it guards, and its end."""
    synced, fsync = list[tuple[str, ...]](), os.fsync
    places = {path.stat().st_ino: path for path in (tmp_path, data)}

    def note(fd: int) -> None:
        place = places.get(os.fstat(fd).st_ino)
        if place is not None:
            files = (file.name for file in place.iterdir() if file.is_file() and file.suffix != ".lock")
            synced.append((place.name, *sorted(files)))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    target = saved(tmp_path, data)
    restore(target, data_dir=data, force=True, now=NOW)

    databases = ("db.sqlite", "kv.sqlite", "objects.sqlite")
    assert synced == [
        (tmp_path.name, SAVED),
        ("data", *databases, "restore-unfinished.sqlite"),
        ("data", *databases, "restore-unfinished.sqlite"),
        ("data", *databases),
    ]


def test_nobody_can_start_during_the_restore_and_anybody_can_after_it(
    monkeypatch: pytest.MonkeyPatch, data: Path, target: Path
) -> None:
    """The directory is locked while files move, and released also when the restore fails."""
    rename, held = Path.rename, list[bool]()

    def full_disk(self: Path, to: Path) -> Path:
        if self.parent.name.startswith(".tocsin-restore-"):
            held.append(is_in_use(data))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(to))
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", full_disk)
    with pytest.raises(FileRefused, match=r"data/objects.sqlite: No space left on device\.$"):
        restore(target, data_dir=data, force=True, now=NOW)

    assert held == [True]
    assert not is_in_use(data)


def test_a_refused_restore_leaves_no_directory_that_it_made(tmp_path: Path) -> None:
    """One that was there stays."""
    (tmp_path / "text.tar").write_text("no backup")
    (tmp_path / "old").mkdir()
    for name in ("new", "old"):
        with pytest.raises(FileRefused, match=r"text.tar cannot be used"):
            restore(tmp_path / "text.tar", data_dir=tmp_path / name, force=False, now=NOW)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "text.tar"]
    assert list((tmp_path / "old").iterdir()) == []


def test_a_directory_with_no_data_needs_no_force(tmp_path: Path, target: Path) -> None:
    """A new volume has `lost+found`; a service that never got further has left its lock."""
    new = tmp_path / "new"
    (new / "lost+found").mkdir(parents=True)
    (new / "tocsin.lock").touch()
    _, _, aside = restore(target, data_dir=new, force=False, now=NOW)

    assert (value_in(new), aside) == ("first", None)


def test_rows_that_refer_to_nothing_are_refused(tmp_path: Path, data: Path) -> None:
    """SQLite's integrity check does not look for them."""
    with closing(sqlite3.connect(data / "db.sqlite")) as db, db:
        (table, column) = next(
            (table, row[3])
            for (table,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
            for row in db.execute(f"PRAGMA foreign_key_list({table})").fetchall()
        )
        needed = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[3] or row[1] == column]
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.execute(
            f"INSERT INTO {table} ({', '.join(needed)}) VALUES ({', '.join('?' * len(needed))})", [1] * len(needed)
        )
    with pytest.raises(FileRefused, match=r"db.sqlite: a row refers to a row that does not exist\."):
        verify(saved(tmp_path, data))


def test_a_backup_has_every_database_of_the_directory(tmp_path: Path, data: Path) -> None:
    """Also one that this release does not know."""
    with closing(sqlite3.connect(data / "notes.sqlite")) as notes, notes:
        notes.execute("CREATE TABLE notes (text)")
        notes.execute("INSERT INTO notes VALUES ('mine')")
    restore(saved(tmp_path, data), data_dir=tmp_path / "new", force=False, now=NOW)

    with closing(sqlite3.connect(tmp_path / "new" / "notes.sqlite")) as notes:
        assert notes.execute("SELECT text FROM notes").fetchall() == [("mine",)]


class Notes(DurableObject):
    """Keeps rows in its own tables."""

    async def add(self, text: str) -> list[list[str]]:
        sql = self.ctx.storage.sql
        sql.exec("CREATE TABLE IF NOT EXISTS notes (text)")
        sql.exec("INSERT INTO notes VALUES (?)", text)
        return list(sql.exec("SELECT text FROM notes").raw())


async def test_a_backup_has_the_tables_of_objects(tmp_path: Path, data: Path) -> None:
    """They are in objects.sqlite. Copies that a killed service left are neither saved nor used after a restore."""
    async with objects(data, Notes) as made:
        await made.stub().add("saved")
        target = saved(tmp_path, data)
        await made.stub().add("later")
        copytree(data / "objects-sql", tmp_path / "left")
    copytree(tmp_path / "left", data / "objects-sql")

    restore(target, data_dir=data, force=True, now=NOW)
    opened(data).close()

    async with objects(data, Notes) as made:
        assert await made.stub().add("new") == [["saved"], ["new"]]


def test_a_backup_sees_through_links(tmp_path: Path, data: Path) -> None:
    """A link to the data directory is the data directory, and a link that leads nowhere is a name that is taken."""
    (tmp_path / "link").symlink_to(data)
    (tmp_path / "taken.tar").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="would be lost with it"):
        backup(tmp_path / "link", data_dir=data, clock=lambda: NOW)
    with pytest.raises(UsageError, match=r"taken.tar already exists"):
        backup(tmp_path / "taken.tar", data_dir=data, clock=lambda: NOW)

    assert (tmp_path / "taken.tar").is_symlink()


def test_a_name_that_is_taken_while_the_backup_is_made_is_not_overwritten(tmp_path: Path, data: Path) -> None:
    """Another backup of the same second, for example."""

    def clock() -> int:
        if list(tmp_path.glob(".tocsin-backup-*")):  # the copies are being made
            (tmp_path / SAVED).write_text("mine")
        return NOW

    with pytest.raises(UsageError, match="already exists"):
        backup(tmp_path, data_dir=data, clock=clock)

    assert (tmp_path / SAVED).read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", SAVED]


def test_without_a_destination_the_backup_is_made_here(tmp_path: Path, data: Path) -> None:
    """As docs/backup.md has it."""
    here = tmp_path / "here"
    here.mkdir()
    with chdir(here):
        target, manifest = backup(None, data_dir=data, clock=lambda: NOW)

    assert (target, manifest.taken_at) == (Path(SAVED), NOW)
    assert [path.name for path in here.iterdir()] == [SAVED]


def test_a_database_that_somebody_holds_is_not_backed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    """Nothing is left of the backup."""
    monkeypatch.setattr("tocsin.commands.backup.one_instant", partial(one_instant, wait_s=0.1))
    with closing(sqlite3.connect(data / "kv.sqlite", isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(FileRefused, match=r"^No backup was made: another program .* locked for 0.1 s: end it"):
            backup(tmp_path, data_dir=data, clock=lambda: NOW)

    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_too_little_room_is_not_called_a_bad_backup(tmp_path: Path, data: Path, target: Path) -> None:
    """Neither by verify, nor by restore, nor is a backup left that is not whole."""
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(FileRefused, match=r"was not checked: there is no room .* set TMPDIR"):
            verify(target)
        with pytest.raises(FileRefused, match=r"was not checked: there is no room"):
            restore(target, data_dir=tmp_path / "new", force=False, now=NOW)
        with pytest.raises(FileRefused, match=r"cannot be backed up|No backup was made"):
            backup(tmp_path / "second.tar", data_dir=data, clock=lambda: NOW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))

    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", SAVED]
    assert verify(target).taken_at == NOW
