"""The data directory: one process at a time, disks that cannot be written, and refusals that change nothing."""

import errno
import fcntl
import hashlib
import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.errors import DataDirInUse, MigrationFailed, SchemaMismatch, StartError, StoreUnusable
from holdfast.local import sqlite_file, store_check
from holdfast.local.data_dir import LOCK_NAME, DataDir, DataLock, is_in_use
from holdfast.local.migrations import Migration
from holdfast.testing.virtual_time import START_MS
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.linux import mount_namespace, only_linux, open_files
from holdfast_testing.processes import TESTS, holding, run
from holdfast_testing.stores import open_dir, with_an_index_that_lacks_a_row


def snapshot(path: Path) -> dict[str, tuple[int, int, str]]:
    """Every file in a directory: mode, modification time, content."""
    return {
        str(file.relative_to(path)): (
            file.stat().st_mode,
            file.stat().st_mtime_ns,
            hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "",
        )
        for file in [path, *path.rglob("*")]
    }


@contextmanager
def holder(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the directory."""
    process = subprocess.Popen(holding(path), cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    try:
        yield process
    finally:
        process.communicate()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory that was used and closed properly."""
    open_dir(tmp_path / "data").close()
    return tmp_path / "data"


def test_a_new_directory_is_private_and_ready(tmp_path: Path) -> None:
    """It is only for this user, has each database at its schema, and can be opened again."""
    path = tmp_path / "data"
    log = CapturedLog()
    open_dir(path, log=log).close()
    open_dir(path).close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert [line["migration"] for line in log.named("migration.applied")] == ["0001_create_entries"]
    with closing(sqlite3.connect(path / "kv.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (0,)


def test_a_second_process_gets_the_holder_of_the_directory(tmp_path: Path) -> None:
    """The message has the directory and the holder's process id, and the refused start changes nothing."""
    path = tmp_path / "data"
    with holder(path) as process:
        before = snapshot(path)
        with pytest.raises(DataDirInUse, match=rf"{path} is in use by process {process.pid} on .*, started 20\d\d-"):
            open_dir(path)

        assert snapshot(path) == before
    open_dir(path).close()


def test_deleting_the_lock_file_lets_no_second_process_in(tmp_path: Path) -> None:
    """The lock is on the directory. The refused start does not create a new lock file either."""
    path = tmp_path / "data"
    with holder(path):
        (path / LOCK_NAME).unlink()
        before = snapshot(path)
        with pytest.raises(DataDirInUse, match=f"{path} is in use by another process"):
            open_dir(path)

        assert snapshot(path) == before
    open_dir(path).close()


def test_a_link_in_place_of_the_lock_file_is_refused(tmp_path: Path) -> None:
    """Its target keeps its content."""
    target, path = tmp_path / "precious", tmp_path / "data"
    target.write_text("mine")
    path.mkdir()
    (path / LOCK_NAME).symlink_to(target)
    with pytest.raises(StoreUnusable, match=f"{path / LOCK_NAME} is a symbolic link.*Remove the link"):
        open_dir(path)

    assert target.read_text() == "mine"


@pytest.mark.parametrize("name", ["kv.sqlite", "kv.sqlite-wal", "kv.sqlite-shm"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_in_place_of_a_database_is_refused(data: Path, tmp_path: Path, name: str, *, exists: bool) -> None:
    """SQLite would follow it, and write to or create what it points to."""
    target = tmp_path / "elsewhere"
    if exists:
        target.write_text("precious")
    (data / name).unlink(missing_ok=True)
    (data / name).symlink_to(target)

    with pytest.raises(StoreUnusable, match=f"{data / name} is a symbolic link.*Remove the link"):
        open_dir(data)

    assert target.exists() is exists
    assert not exists or target.read_text() == "precious"


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    """In a directory that existed before, with a umask that would let everybody write."""
    previous = os.umask(0)
    try:
        opened = open_dir(tmp_path)
        with closing(sqlite_file.connect(tmp_path / "kv.sqlite")) as connection:
            connection.execute("SELECT count(*) FROM entries")
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        opened.close()
    finally:
        os.umask(previous)

    names = {"kv.sqlite", "kv.sqlite-wal", "kv.sqlite-shm", LOCK_NAME}
    assert modes == dict.fromkeys(names, 0o600)


def test_a_killed_holder_leaves_nothing_to_clean_up(tmp_path: Path) -> None:
    """After kill -9 the next start works and holds the lock, even against its own process."""
    path = tmp_path / "data"
    with holder(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    reopened = open_dir(path)
    with pytest.raises(DataDirInUse, match=f"process {os.getpid()} "):
        open_dir(path)
    reopened.close()


def test_a_holder_that_has_not_signed_yet_is_not_confused_with_a_dead_one(data: Path) -> None:
    """While a new holder is still checking, the text of a killed one is ignored."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    opened = open_dir(data)
    text = json.loads((data / "tocsin.lock").read_text())
    (data / "tocsin.lock").write_text(json.dumps(text | {"pid": dead.pid}))
    with pytest.raises(DataDirInUse, match="in use by another process that is just starting"):
        open_dir(data)
    opened.close()


def of_one_page(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096])


def with_garbage_inside(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:8192] = os.urandom(4096)
    path.write_bytes(content)


def with_a_newer_schema(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO tocsin_migrations VALUES (2, '0002_from_the_future', '', 0)")


def changed_by_hand(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE handmade (a)")


def without_its_database(path: Path) -> None:
    path.with_name("kv.sqlite-wal").write_bytes(b"leftover")
    path.unlink()


def with_a_garbled_log(path: Path) -> None:
    path.with_name("kv.sqlite-wal").write_bytes(os.urandom(8192))


def cut_within_a_page(path: Path) -> None:
    """The checksum of the last migration is at the end of the file."""
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize(
    ("damage", "error", "sentence"),
    [
        (cut_within_a_page, StoreUnusable, "kv.sqlite is damaged"),
        (with_an_index_that_lacks_a_row, StoreUnusable, "kv.sqlite is damaged"),
        (lambda path: path.write_bytes(b""), StoreUnusable, "kv.sqlite is empty"),
        (lambda path: path.write_bytes(b"\0" * 8192), StoreUnusable, "kv.sqlite is not a SQLite database"),
        (lambda path: path.write_bytes(path.read_bytes()[:60]), StoreUnusable, "kv.sqlite is not a SQLite database"),
        (of_one_page, StoreUnusable, "kv.sqlite is damaged"),
        (with_garbage_inside, StoreUnusable, "kv.sqlite is damaged"),
        (with_a_garbled_log, StoreUnusable, "kv.sqlite-wal is damaged"),
        (without_its_database, StoreUnusable, "kv.sqlite is missing but its log"),
        (with_a_newer_schema, SchemaMismatch, "kv.sqlite is newer than this code"),
        (changed_by_hand, SchemaMismatch, "kv.sqlite differs from what its migrations created"),
        (lambda path: path.with_name("other.sqlite").write_bytes(b"?"), StoreUnusable, "other.sqlite is not a SQLite"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_untouched(
    data: Path, damage: Callable[[Path], None], error: type[StartError], sentence: str
) -> None:
    """Each kind of damage has a message with a fix. All files stay as they were. After a repair it starts."""
    good = (data / "kv.sqlite").read_bytes()
    damage(data / "kv.sqlite")
    before = snapshot(data)
    with pytest.raises(error, match=sentence):
        open_dir(data)

    assert snapshot(data) == before

    for file in data.iterdir():
        if "sqlite" in file.name:
            file.unlink()
    (data / "kv.sqlite").write_bytes(good)
    open_dir(data).close()


def test_damage_is_found_behind_a_log_that_was_not_replayed(data: Path) -> None:
    """A killed process leaves a log. The check reads file and log together and changes neither."""
    changed_by_hand_in_log = sqlite_file.connect(data / "kv.sqlite")
    changed_by_hand_in_log.execute("CREATE TABLE handmade (a)")
    kept = {file.name: file.read_bytes() for file in data.glob("kv.sqlite*")}
    changed_by_hand_in_log.close()
    for name, content in kept.items():
        (data / name).write_bytes(content)
    before = snapshot(data)
    with pytest.raises(SchemaMismatch, match="unexpected: table handmade"):
        open_dir(data)

    assert snapshot(data) == before


@pytest.mark.parametrize("log", [b"", b"short", bytes(8192)])
def test_a_log_that_a_crash_left_unwritten_is_not_damage(data: Path, log: bytes) -> None:
    """Nothing in a log without a header was ever acknowledged. The start succeeds."""
    (data / "kv.sqlite-wal").write_bytes(log)
    open_dir(data).close()


def test_a_refused_start_leaves_no_lock_file_behind(tmp_path: Path) -> None:
    """A directory with only a damaged database in it has only that afterwards."""
    (tmp_path / "kv.sqlite").write_bytes(b"?")
    with pytest.raises(StoreUnusable, match="not a SQLite database"):
        open_dir(tmp_path)

    assert [file.name for file in tmp_path.iterdir()] == ["kv.sqlite"]


def test_a_large_store_gets_the_cheap_checks_and_still_its_schema(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit no file is read completely. A newer schema is still refused."""
    monkeypatch.setattr(store_check, "EXAMINE_BYTES_MAX", 0)
    open_dir(data).close()
    with_a_newer_schema(data / "kv.sqlite")
    with pytest.raises(SchemaMismatch, match="newer"):
        open_dir(data)


def test_a_start_that_cannot_migrate_lets_the_next_one_in(data: Path) -> None:
    """A failed migration stops the start with its name, and the lock is released."""
    broken = Migration(1, "0001_broken", "", ("INSERT INTO nowhere VALUES (1)",))
    with pytest.raises(MigrationFailed, match="0001_broken"):
        open_dir(data, {"db.sqlite": [broken]})
    open_dir(data).close()


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    """The message has its path. The file stays as it was."""
    file = tmp_path / "data"
    file.write_text("mine")
    with pytest.raises(StoreUnusable, match=f"{file} is not a directory"):
        open_dir(file)

    assert file.read_text() == "mine"


def test_a_missing_parent_is_named(tmp_path: Path) -> None:
    """Only the directory itself is created. The message asks for the one above it."""
    with pytest.raises(StoreUnusable, match="its parent directory does not exist"):
        open_dir(tmp_path / "absent" / "data")

    assert list(tmp_path.iterdir()) == []


HOLDER = {"pid": os.getpid(), "startedAt": START_MS, "host": socket.gethostname()}


def test_the_holder_is_named_with_its_start(tmp_path: Path) -> None:
    """In UTC, to the second; text of an earlier holder does not show through."""
    (tmp_path / LOCK_NAME).write_text("x" * 500)
    lock = DataLock(tmp_path)
    lock.sign(START_MS)
    text = (tmp_path / LOCK_NAME).read_text()
    with pytest.raises(DataDirInUse) as refused:
        DataLock(tmp_path)
    lock.release()

    assert json.loads(text) == HOLDER
    holder = f"process {os.getpid()} on {socket.gethostname()}, started 2026-05-13T19:30:00+00:00"
    assert f"{tmp_path} is in use by {holder}. Stop that process" in str(refused.value)
    assert (tmp_path / LOCK_NAME).read_text() == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        "{}",
        json.dumps({**HOLDER, "startedAt": 10**30}),
        json.dumps({**HOLDER, "startedAt": "x"}),
        json.dumps({**HOLDER, "pid": "x"}),
        json.dumps({**HOLDER, "pid": 2**22 + 1}),  # no process has this number
        json.dumps({**HOLDER, "host": "h" * 1_000}),  # longer than is read
    ],
    ids=["empty", "not-json", "list", "nothing", "late", "no-time", "no-pid", "no-process", "long"],
)
def test_a_holder_that_cannot_be_read_is_one_that_is_just_starting(tmp_path: Path, text: str) -> None:
    """Whatever the file says: the directory is in use."""
    lock = DataLock(tmp_path)
    (tmp_path / LOCK_NAME).write_text(text)
    with pytest.raises(DataDirInUse, match="in use by another process that is just starting"):
        DataLock(tmp_path)
    lock.release()


@pytest.mark.parametrize("pid", [1, 2**22 + 1])
def test_a_holder_on_another_machine_is_named_as_it_signed(tmp_path: Path, pid: int) -> None:
    """Its process cannot be looked up from here."""
    lock = DataLock(tmp_path)
    (tmp_path / LOCK_NAME).write_text(json.dumps({**HOLDER, "pid": pid, "host": "another"}))
    with pytest.raises(DataDirInUse, match=f"in use by process {pid} on another, started 2026"):
        DataLock(tmp_path)
    lock.release()


@only_linux
def test_whether_a_directory_is_in_use_can_be_asked_without_a_trace(tmp_path: Path) -> None:
    """While it is held and afterwards; the check itself holds nothing and leaves no file open."""
    before = open_files()
    lock = DataLock(tmp_path)
    held = [is_in_use(tmp_path) for _ in range(2)]
    lock.release()
    free = [is_in_use(tmp_path) for _ in range(2)]
    after = open_files()
    DataLock(tmp_path).abandon()

    assert (held, free) == ([True, True], [False, False])
    assert after == before


@only_linux
def test_a_refused_lock_leaves_no_file_open(tmp_path: Path) -> None:
    """A service that keeps retrying must not run out of descriptors."""
    lock = DataLock(tmp_path)
    before = open_files()
    for _ in range(3):
        with pytest.raises(DataDirInUse):
            DataLock(tmp_path)

    assert open_files() == before
    lock.release()
    assert open_files() == before - 2


@pytest.mark.parametrize("code", [errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused_by_a_start_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A mere check returns no: the start reports the reason."""

    def flock(_fd: int, _operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StoreUnusable, match="is on a file system without locks"):
        DataLock(tmp_path)
    assert not is_in_use(tmp_path)


def test_a_directory_that_was_made_for_a_start_that_is_refused_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An existing one stays."""

    def flock(_fd: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / "old").mkdir()
    for name in ("new", "old"):
        with pytest.raises(StoreUnusable):
            DataDir(tmp_path / name, {}, now=START_MS, logger=CapturedLog())

    assert [path.name for path in tmp_path.iterdir()] == ["old"]


CONTENT = 'ls -A "$D"; find "$D" -type f -exec sha256sum {} +'


@pytest.fixture(scope="module")
def namespace() -> list[str]:
    return mount_namespace("mount -t tmpfs none /mnt")


def start_in(namespace: list[str], data: Path, mounts: str) -> tuple[str, str, str]:
    """Mount and start. Returns the directory before, the output of the start, and the directory after."""
    script = f"""set -e; {mounts}
        ({CONTENT}) 2>&1; echo ====; "$@" </dev/null || true; echo ====; ({CONTENT}) 2>&1"""
    done = run(*namespace, "sh", "-c", script, "sh", *holding(data), env={"D": str(data)})
    before, output, after = done.stdout.split("====\n")
    return before, output, after


@pytest.mark.parametrize(
    ("mounts", "sentence"),
    [
        ('mount --bind "$D" "$D"; mount -o remount,bind,ro "$D"', " is on a read-only file system. Mount it writable"),
        (
            'mount --bind "$D/kv.sqlite" "$D/kv.sqlite"; mount -o remount,bind,ro "$D/kv.sqlite"',
            "/kv.sqlite is on a read-only file system.",
        ),
        (
            """cp -a "$D" "$D.copy"; mount -t tmpfs -o size=2m none "$D"; cp -a "$D.copy/." "$D"
            (dd if=/dev/zero of="$D/filler" bs=4k 2>&1 || true) >/dev/null""",
            " is on a full disk.",
        ),
    ],
    ids=["read-only disk", "read-only file", "disk that became full"],
)
def test_a_disk_that_cannot_be_written_is_refused_with_its_data_untouched(
    namespace: list[str], data: Path, mounts: str, sentence: str
) -> None:
    """The directory, or the one file that cannot be written, is named."""
    before, output, after = start_in(namespace, data, mounts)

    assert output.startswith(f"StoreUnusable: {data}{sentence}")
    assert "kv.sqlite" in before
    assert before == after


def test_a_full_disk_is_refused_before_anything_is_made(namespace: list[str], tmp_path: Path) -> None:
    """A new directory on a disk that is too small: nothing is left in it."""
    before, output, after = start_in(namespace, tmp_path, 'mount -t tmpfs -o size=64k none "$D"')

    assert output.startswith(f"StoreUnusable: {tmp_path} is on a full disk.")
    assert before == after == ""


def test_the_same_disk_with_space_is_taken(namespace: list[str], data: Path) -> None:
    """The control: with free space the same start is accepted."""
    _, output, after = start_in(namespace, data, 'mount -t tmpfs -o size=8m none "$D"')

    assert output == "open\n"
    assert "kv.sqlite" in after


@contextmanager
def as_an_ordinary_user() -> Iterator[None]:
    """Permissions do not apply to root, so a test that runs as root temporarily changes its user."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


def test_a_directory_that_this_user_may_not_write_is_refused() -> None:
    """The message asks for the right owner."""
    with TemporaryDirectory() as scratch:
        path = Path(scratch)
        path.chmod(0o555)
        with as_an_ordinary_user(), pytest.raises(StoreUnusable, match=r"is not writable by this user.*chown"):
            open_dir(path)

        assert list(path.iterdir()) == []


def test_a_directory_that_this_user_may_not_make_is_refused() -> None:
    """The same for a new directory inside one that cannot be written."""
    with TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o555)
        with as_an_ordinary_user(), pytest.raises(StoreUnusable, match="is not writable by this user"):
            open_dir(Path(scratch) / "data")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that another user owns")
@pytest.mark.parametrize("name", ["tocsin.lock", "kv.sqlite", "kv.sqlite-wal", "kv.sqlite-shm"])
def test_a_file_that_this_user_may_not_write_is_named(name: str) -> None:
    """As after a command of root: the directory is fine, one file in it belongs to root."""
    with TemporaryDirectory() as scratch:
        path = Path(scratch)
        open_dir(path).close()
        for file in (path, *path.iterdir()):
            os.chown(file, 65534, 65534)
        (path / name).touch()
        os.chown(path / name, 0, 0)
        (path / name).chmod(0o600)
        with (
            as_an_ordinary_user(),
            pytest.raises(StoreUnusable, match=f"{path / name} is not writable by this user.*chown"),
        ):
            open_dir(path)
