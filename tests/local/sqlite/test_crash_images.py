"""What kill -9 leaves is checked where it is: without temporary room, and without calling a bad disk bad data."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import StoreUnusable
from holdfast.local import store_check
from holdfast.local.data_dir import DataDir
from holdfast.local.kv import KV_MIGRATIONS
from holdfast.local.migrations import load
from holdfast.types import JSON
from support.captured_log import CapturedLog
from support.missing import CC, require
from support.virtual_time import START_MS

TESTS = Path(__file__).parents[2]
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
OPEN = [sys.executable, "-m", "support.hold_data_dir"]
SMALL_TMP = 'mount -t tmpfs -o size=$ROOM none "$TMPDIR"; exec "$@" </dev/null'
NAMESPACES = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])


def open_dir(path: Path, log: CapturedLog | None = None) -> DataDir:
    return DataDir(path, {"kv.sqlite": load(KV_MIGRATIONS)}, now=START_MS, logger=log or CapturedLog())


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


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
    done = subprocess.run(
        [*command, *OPEN, str(path), f"kv.sqlite={KV_MIGRATIONS}"],
        cwd=TESTS,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    room = {**os.environ, "TMPDIR": str(tmp_path_factory.mktemp("room")), "ROOM": "64k"}
    for candidate in NAMESPACES if shutil.which("unshare") else ():
        trial = [*candidate, "sh", "-ec", SMALL_TMP, "sh", "true"]
        if subprocess.run(trial, env=room, capture_output=True, check=False).returncode == 0:
            return candidate
    pytest.skip("this system does not allow a mount namespace (unshare)")


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
        def warn(self, event: str, /, **fields: JSON) -> None:
            shell.close()
            super().warn(event, **fields)

    log = LetsGo()
    open_dir(crashed, log).close()

    assert log.named("store.not_checked") == [{"file": "kv.sqlite", "error": "database is locked"}]
    assert rows(crashed) == ROWS


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    require(compiler is not None, CC)
    assert compiler is not None
    library = tmp_path_factory.mktemp("failing") / "failing.so"
    source = TESTS / "support" / "failing_reads.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's")
@pytest.mark.parametrize("name", ["kv.sqlite", LOG])
def test_a_disk_that_cannot_be_read_is_not_damage(failing: Path, crashed: Path, name: str) -> None:
    """For ever: refused with the cause and nothing changed. For a moment: not called damaged either."""
    if name == "kv.sqlite":  # move the rows from the log into the database
        open_dir(crashed).close()
    before = contents(crashed)
    fault = {"LD_PRELOAD": str(failing), "FAIL_FILE": str(crashed / name), "FAIL_FROM": "1000000"}
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
