"""What a start finds in a database and its log: without temporary room, without calling a bad disk bad data."""

import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import StoreUnusable
from holdfast.local import data_dir, sqlite_file, store_check
from holdfast.local.kv import KV_MIGRATIONS
from holdfast.local.migrations import load
from holdfast.types import JSON
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.linux import compiled, mount_namespace
from holdfast_testing.processes import holding, run
from holdfast_testing.stores import open_dir, with_an_index_that_lacks_a_row

FILL = """
WITH RECURSIVE counter (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < 500)
INSERT INTO entries SELECT hex(randomblob(20)), hex(randomblob(200)), n FROM counter"""


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory that was used and closed properly."""
    open_dir(tmp_path / "data").close()
    return tmp_path / "data"


def killed_after(path: Path, *statements: str) -> dict[str, bytes]:
    """Return the database and its log as left by a process that is killed after these statements."""
    connection = sqlite_file.connect(path)
    for statement in statements:
        connection.execute(statement)
    kept = {name: (path.parent / name).read_bytes() for name in (path.name, f"{path.name}-wal")}
    connection.close()
    return kept


def test_a_log_that_is_left_beside_a_restored_database_is_refused(data: Path) -> None:
    """The database was restored without its log. That cannot be told from damage, so both files are kept."""
    backup = (data / "kv.sqlite").read_bytes()
    killed_after(data / "kv.sqlite", FILL)
    later = killed_after(data / "kv.sqlite", "UPDATE entries SET value = 'x' WHERE expires_at = 1")
    (data / "kv.sqlite").write_bytes(backup)
    (data / "kv.sqlite-wal").write_bytes(later["kv.sqlite-wal"])
    before = contents(data)
    with pytest.raises(
        StoreUnusable, match=r"kv.sqlite is damaged .* keep kv.sqlite and kv.sqlite-wal until you have$"
    ):
        open_dir(data)

    assert contents(data) == before


def test_a_page_that_a_crash_has_cut_is_taken_from_the_log(data: Path) -> None:
    """A full disk may cut the page that is copied from the log. The log still has it, so nothing is damaged."""
    kept = killed_after(data / "kv.sqlite", FILL)
    (data / "kv.sqlite").write_bytes(kept["kv.sqlite"] + b"half a page")
    (data / "kv.sqlite-wal").write_bytes(kept["kv.sqlite-wal"])
    open_dir(data).close()

    with closing(sqlite3.connect(data / "kv.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (500,)


def test_the_indexes_of_a_large_database_are_not_compared(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take too long. Its pages are still checked."""
    monkeypatch.setattr(store_check, "INTEGRITY_BYTES_MAX", 0)
    with_an_index_that_lacks_a_row(data / "kv.sqlite")
    open_dir(data).close()

    (data / "kv.sqlite").write_bytes((data / "kv.sqlite").read_bytes()[:4096])
    with pytest.raises(StoreUnusable, match=r"kv.sqlite is damaged"):
        open_dir(data)


def test_a_database_with_pages_of_64_kib_is_checked_by_its_own_page_size(tmp_path: Path) -> None:
    """The header has no room for 65,536 and says 1 instead."""
    path = tmp_path / "large.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA page_size = 65536")
        connection.execute("CREATE TABLE t (a)")
    store_check.examine(path, None)

    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreUnusable, match=r"large.sqlite is damaged \(the last 1 bytes are missing\)"):
        store_check.examine(path, None)


def test_a_database_that_cannot_be_opened_is_called_damaged_only_if_it_is(data: Path) -> None:
    """SQLite blames the file system, then the content."""
    (data / "text").write_text("no database" * 100)
    with (
        pytest.raises(StoreUnusable, match=r"\(unable to open database file\)\. The data may be intact: see"),
        data_dir._explained(data),
    ):
        sqlite_file.connect(data / "absent")
    with (
        pytest.raises(StoreUnusable, match=r"\(file is not a database\)\. Restore a backup$"),
        data_dir._explained(data),
    ):
        sqlite_file.connect(data / "text")


def test_how_much_of_a_database_is_checked_depends_on_its_size() -> None:
    """As docs/data.md has it: everything up to 64 MiB, without the indexes up to 256 MiB."""
    assert store_check.INTEGRITY_BYTES_MAX == 67_108_864
    assert store_check.EXAMINE_BYTES_MAX == 268_435_456


LOG = "kv.sqlite-wal"
ROWS = 4000
WRITE = f"""
import sys
from pathlib import Path
from holdfast.local import sqlite_file
connection = sqlite_file.connect(Path(sys.argv[1]))
connection.execute("PRAGMA wal_autocheckpoint = 0")
connection.execute('''WITH RECURSIVE counter (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < {ROWS})
    INSERT INTO entries SELECT printf('key-%05d', n), printf('%0500d', n), n FROM counter''')
print("written", flush=True)
sys.stdin.read()
"""
SMALL_TMP = 'mount -t tmpfs -o size=$ROOM none "$TMPDIR"; exec "$@" </dev/null'


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path / "kv.sqlite")) as connection:
        (count,) = connection.execute("SELECT count(*) FROM entries").fetchone()
    return int(count)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose process was killed with all rows in the log, and none in the database."""
    data = tmp_path_factory.mktemp("crash") / "data"
    open_dir(data).close()
    program = [sys.executable, "-c", WRITE, str(data / "kv.sqlite")]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
    assert (data / LOG).stat().st_size > 2_000_000
    return data


@pytest.fixture
def crashed(image: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(image, tmp_path / "data"))


def start(path: Path, *command: str, **environment: str) -> str:
    """Start in a process of its own; returns what it says, once it has closed again."""
    done = run(*command, *holding(path), env=environment)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return mount_namespace(SMALL_TMP, TMPDIR=str(tmp_path_factory.mktemp("room")), ROOM="64k")


@pytest.mark.slow
@pytest.mark.parametrize("room", ["4k", "64k", "2500k"])
def test_a_start_after_a_crash_needs_no_temporary_room(
    namespace: list[str], crashed: Path, tmp_path: Path, room: str
) -> None:
    """None, little, and room for a copy of the files but not for SQLite's work on it."""
    (tmp_path / "tmp").mkdir()
    command = (*namespace, "sh", "-ec", SMALL_TMP, "sh")

    assert start(crashed, *command, TMPDIR=str(tmp_path / "tmp"), ROOM=room) == "open\n"
    assert rows(crashed) == ROWS


def test_the_check_after_a_crash_changes_no_byte_and_no_time(crashed: Path) -> None:
    """Neither the database, nor its log, nor the index of the log, nor the directory."""

    def seen() -> dict[str, tuple[int, int, bytes]]:
        files = {
            file.name: (file.stat().st_mtime_ns, file.stat().st_ino, file.read_bytes()) for file in crashed.iterdir()
        }
        return {".": (crashed.stat().st_mtime_ns, 0, b""), **files}

    before = seen()
    unchecked = store_check.examine(crashed / "kv.sqlite", load(KV_MIGRATIONS))

    assert unchecked is None
    assert sorted(before) == [".", "kv.sqlite", "kv.sqlite-shm", "kv.sqlite-wal", "tocsin.lock"]
    assert seen() == before


@pytest.mark.parametrize("left", [b"", b"x" * 40_000, None])
def test_the_index_of_the_log_does_not_matter(crashed: Path, left: bytes | None) -> None:
    """An empty one, one of rubbish, and none: each is as it was afterwards, and all rows are found."""
    index = crashed / "kv.sqlite-shm"
    if left is None:
        index.unlink()
    else:
        index.write_bytes(left)
    before = contents(crashed)
    unchecked = store_check.examine(crashed / "kv.sqlite", load(KV_MIGRATIONS))

    assert unchecked is None
    assert contents(crashed) == before
    open_dir(crashed).close()
    assert rows(crashed) == ROWS


def test_a_log_of_a_header_alone_is_empty(crashed: Path) -> None:
    """A power cut may come before its first page: the database is checked without it, and at once."""
    (crashed / LOG).write_bytes((crashed / LOG).read_bytes()[:32])
    unchecked = store_check.examine(crashed / "kv.sqlite", load(KV_MIGRATIONS))

    assert unchecked is None
    open_dir(crashed).close()
    assert rows(crashed) == 0


def test_damage_in_the_log_is_found(crashed: Path) -> None:
    """Pages of another database, in a log that SQLite accepts. Nobody is told to remove the log."""
    with closing(sqlite3.connect(crashed / "kv.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        # Committed by SQLite with right sums: the table's root page is the index's.
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_schema SET rootpage = 3 WHERE name = 'entries'")
        connection.commit()
        kept = {name: (crashed / name).read_bytes() for name in ("kv.sqlite", LOG)}
    for name, content in kept.items():
        (crashed / name).write_bytes(content)
    before = contents(crashed)
    with pytest.raises(StoreUnusable, match=r"kv\.sqlite is damaged \(.*\)\. Restore it from a backup") as refused:
        open_dir(crashed)

    assert str(refused.value).endswith(", and keep kv.sqlite and kv.sqlite-wal until you have")
    assert "remove" not in str(refused.value)
    assert contents(crashed) == before


@pytest.mark.parametrize("at", [0, 4, 8, 12, 16, 20, 24, 28, 31])
def test_a_log_whose_header_is_damaged_is_refused(crashed: Path, at: int) -> None:
    """SQLite would ignore the log, and overwrite all that it holds."""
    content = bytearray((crashed / LOG).read_bytes())
    content[at] ^= 1
    (crashed / LOG).write_bytes(content)
    before = contents(crashed)
    with pytest.raises(StoreUnusable, match=r"kv.sqlite-wal is damaged: it has the latest writes to kv.sqlite"):
        open_dir(crashed)

    assert contents(crashed) == before


@pytest.mark.slow
def test_a_check_that_cannot_be_made_is_reported_and_does_not_stop_the_start(crashed: Path) -> None:
    """Here somebody's shell holds the database, until the check has given up. That says nothing about the data."""
    shell = sqlite3.connect(crashed / "kv.sqlite", isolation_level=None)
    shell.execute("PRAGMA locking_mode = EXCLUSIVE")
    shell.execute("BEGIN IMMEDIATE")

    class LetsGo(CapturedLog):
        def warning(self, event: str, /, **fields: JSON) -> None:
            shell.close()
            super().warning(event, **fields)

    log = LetsGo()
    open_dir(crashed, log=log).close()

    assert log.named("store.not_checked") == [{"file": "kv.sqlite", "error": "database is locked"}]
    assert rows(crashed) == ROWS


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled("failing_reads.c", tmp_path_factory.mktemp("failing"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's")
@pytest.mark.parametrize("name", ["kv.sqlite", LOG])
def test_a_disk_that_cannot_be_read_is_not_damage(failing: str, crashed: Path, name: str) -> None:
    """For ever: refused with the cause and nothing changed. For a moment: not called damaged either."""
    if name == "kv.sqlite":  # move the rows from the log into the database
        open_dir(crashed).close()
    before = contents(crashed)
    fault = {"LD_PRELOAD": failing, "FAIL_FILE": str(crashed / name), "FAIL_FROM": "1000000"}
    for_ever = start(crashed, **fault, FAIL_TIMES="1000000")
    after = contents(crashed)
    for_a_moment = [start(crashed, **fault, FAIL_TIMES=times) for times in ("1", "2")]

    assert for_ever.startswith(f"StoreUnusable: {crashed}")
    assert for_ever.endswith(
        " is on a disk that reports an error. See the kernel log (dmesg), and start again when the disk works\n"
    )
    assert after == before
    assert set(for_a_moment) <= {"open\n", for_ever, for_ever.replace(f"{crashed}/kv.sqlite", str(crashed))}
    assert start(crashed) == "open\n"
    assert rows(crashed) == ROWS
