"""`storage.sql` on our own runtime: the copy of each object, the shared file, and failures between the two."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.errors import ObjectReset, RemoteError
from holdfast.local import object_sql, snapshot
from holdfast_testing.objects import Register, objects
from holdfast_testing.stores import nothing


class Table(Register):
    """Rows in a table, and an entry that has their count."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self.sql = ctx.storage.sql

    async def add(self, *texts: str) -> int:
        self.sql.exec("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, text TEXT)")
        for text in texts:
            self.sql.exec("INSERT INTO t (text) VALUES (?)", text)
        count: int = self.sql.exec("SELECT count(*) AS n FROM t").one().n
        self.ctx.storage.kv.put("count", count)
        return count

    async def run(self, *queries: str) -> list[Any]:
        return [list(self.sql.exec(query).raw()) for query in queries]

    async def both(self) -> list[Any]:
        tables = next(self.sql.exec("SELECT count(*) FROM sqlite_master").raw())[0]
        rows = self.sql.exec("SELECT count(*) AS n FROM t").one().n if tables else 0
        return [rows, self.ctx.storage.kv.get("count") or 0]

    async def hold(self, text: str, seconds: float) -> None:
        async def work(_transaction: Any) -> None:
            await self.add(text)
            await asyncio.sleep(seconds)

        await self.ctx.storage.transaction(work)

    async def add_and_abort(self, *, clear: bool = False) -> None:
        if clear:
            await self.ctx.storage.delete_all()
        await self.add("not kept")
        self.ctx.abort("as requested")

    async def break_at_the_end(self) -> None:
        self.sql.exec("CREATE TABLE IF NOT EXISTS child (t REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED)")
        self.sql.exec("INSERT INTO child VALUES (99)")
        await self.add("not kept")

    async def clear(self) -> None:
        await self.ctx.storage.delete_all()

    async def later(self) -> None:
        asyncio.get_running_loop().call_later(1, self.sql.exec, "INSERT INTO t (text) VALUES ('by a timer')")

    async def leak(self) -> None:
        self.env.leaked = self.sql

    async def big_and_small(self) -> int:
        """A transaction larger than SQLite's cache, rolled back, and then a small one."""

        def work() -> None:
            self.sql.exec("WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n LIMIT 600) "
                          "INSERT INTO t (text) SELECT hex(randomblob(400)) FROM n")  # fmt: skip
            raise ValueError

        try:
            self.ctx.storage.transaction_sync(work)
        except ValueError:
            return await self.add("small")
        raise AssertionError


def files(directory: Path) -> list[str]:
    return sorted(file.name for file in (directory / "objects-sql").glob("*"))


def pages(directory: Path) -> int:
    with closing(sqlite3.connect(directory / "objects.sqlite")) as shared:
        return int(shared.execute("SELECT count(*) FROM sql_pages").fetchone()[0])


def open_files(directory: Path) -> int:
    """How many handles of files of objects this process has."""
    found = 0
    for handle in Path("/proc/self/fd").iterdir():
        try:
            found += str(directory / "objects-sql") in str(handle.readlink())
        except FileNotFoundError:  # that of the list itself
            continue
    return found


async def test_an_object_without_tables_has_no_file(tmp_path: Path) -> None:
    """It costs nothing."""
    async with objects(tmp_path, Register) as made:
        await made.stub().put("k", 1)
        assert not (tmp_path / "objects-sql").exists()
        assert pages(tmp_path) == 0


async def test_tables_survive_eviction_and_restart(tmp_path: Path) -> None:
    """The file of an evicted object is closed; the files of a process are removed when it ends."""
    async with objects(tmp_path, Table) as made:
        await made.stub().add("a", "b")
        assert len(files(tmp_path)) == 2
        await asyncio.sleep(11)
        assert len(files(tmp_path)) == 1
        assert await made.stub().add("c") == 3
    assert not (tmp_path / "objects-sql").exists()
    async with objects(tmp_path, Table) as made:
        assert await made.stub().both() == [3, 3]


class Prepared(Table):
    """Makes its table when it is constructed."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self.sql.exec("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, text TEXT)")


async def test_a_constructor_may_make_tables(tmp_path: Path) -> None:
    """They are committed before the first call is answered."""
    async with objects(tmp_path, Prepared) as made:
        assert await made.stub().both() == [0, 0]
    async with objects(tmp_path, Table) as made:
        assert await made.stub().run("SELECT name FROM sqlite_master") == [[["t"]]]


async def test_a_copy_that_somebody_removed_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even while the process runs: nothing is lost."""
    monkeypatch.setattr(object_sql, "OPEN_MAX", 1)
    async with objects(tmp_path, Table) as made:
        await made.stub("a").add("x")
        for file in (tmp_path / "objects-sql").iterdir():
            file.unlink()
        assert await made.stub("a").add("x") == 2
        await made.stub("b").add("x")
        assert await made.stub("a").add("x") == 3


async def test_files_of_another_process_are_not_trusted(tmp_path: Path) -> None:
    """Whatever a killed process left: the shared file has all that was committed, and nothing else."""
    async with objects(tmp_path, Table) as made:
        await made.stub().add("a")
        name = made.stub().id.hex
    (tmp_path / "objects-sql").mkdir()
    (tmp_path / "objects-sql" / f"{name}.sqlite").write_bytes(b"torn" * 1000)
    (tmp_path / "objects-sql" / f"{name}.sqlite-wal").write_bytes(b"torn" * 1000)
    async with objects(tmp_path, Table) as made:
        assert await made.stub().both() == [1, 1]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="/proc is Linux's")
async def test_the_number_of_open_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used is closed, except during a transaction."""
    monkeypatch.setattr(object_sql, "OPEN_MAX", 3)
    async with objects(tmp_path, Table) as made:
        held = made.stub("held").hold("a", 5)
        await asyncio.sleep(1)
        for turn in range(1, 4):
            for name in "abcdef":
                assert await made.stub(name).add("x") == turn
                assert open_files(tmp_path) <= 9  # a database, its log, and the log again
        await held
        assert await made.stub("held").both() == [1, 1]
    assert open_files(tmp_path) == 0


@pytest.mark.parametrize(
    ("method", "step", "left"),
    [
        ("add", "after sql commit", 1),
        ("add", "before commit", 1),
        ("add", "after commit", 2),
        ("clear", "before commit", 1),
        ("clear", "after commit", 0),
    ],
)
async def test_a_failed_commit_undoes_rows_and_entries(tmp_path: Path, method: str, step: str, left: int) -> None:
    """The caller gets the error, the object starts again from the shared file, which may have had the commit."""
    async with objects(tmp_path, Table) as made:
        await made.stub().add("kept")

        def fail(point: str, _connection: sqlite3.Connection) -> None:
            if point == step:
                raise sqlite3.OperationalError("disk I/O error")

        made.runtime.store.crash_point = fail
        with pytest.raises(ObjectReset, match="rolled back to its last committed state: disk I/O error"):
            await getattr(made.stub(), method)(*["lost"][: method == "add"])
        made.runtime.store.crash_point = nothing
        assert await made.stub().both() == [left, left]
        assert await made.stub().add("more") == left + 1


async def test_a_deferred_constraint_undoes_the_turn(tmp_path: Path) -> None:
    """The violation is found at the commit: rows and entries are rolled back, the object is reset."""
    async with objects(tmp_path, Table) as made:
        await made.stub().add("kept")
        with pytest.raises(ObjectReset, match="last committed state: FOREIGN KEY constraint failed"):
            await made.stub().break_at_the_end()
        assert await made.stub().both() == [1, 1]


@pytest.mark.parametrize("clear", [False, True])
async def test_an_aborted_turn_changes_nothing(tmp_path: Path, clear: bool) -> None:
    """Not even delete_all()."""
    async with objects(tmp_path, Table) as made:
        await made.stub().add("kept")
        with pytest.raises(ObjectReset):
            await made.stub().add_and_abort(clear=clear)
        assert await made.stub().both() == [1, 1]


async def test_a_statement_that_rolls_back_resets_the_object(tmp_path: Path) -> None:
    """ON CONFLICT ROLLBACK would leave half a turn."""
    async with objects(tmp_path, Table) as made:
        await made.stub().add("kept")
        with pytest.raises(ObjectReset, match="SQLite rolled back the turn"):
            await made.stub().run(
                "INSERT INTO t (text) VALUES ('lost')", "INSERT OR ROLLBACK INTO t (id) VALUES (1)", "SELECT 1"
            )
        assert await made.stub().both() == [1, 1]


async def test_delete_all_frees_the_pages(tmp_path: Path) -> None:
    """In the shared file as well, and for an object that has not used its tables in this process."""
    async with objects(tmp_path, Table) as made:
        await made.stub("a").add("x" * 10_000)
        await made.stub("b").add("x")
        both = pages(tmp_path)
        await made.stub("a").clear()
        assert 0 < pages(tmp_path) < both - 9
        assert files(tmp_path)[0].startswith(made.stub("b").id.hex)
        assert await made.stub("a").both() == [0, 0]
        assert await made.stub("a").add("new") == 1
    async with objects(tmp_path, Table) as made:
        await made.stub("b").clear()
        assert [await made.stub(name).both() for name in "ab"] == [[1, 1], [0, 0]]


async def test_a_write_outside_of_a_turn_is_committed(tmp_path: Path) -> None:
    """Such as that of a callback of the loop."""
    async with objects(tmp_path, Table) as made:
        await made.stub().add("a")
        await made.stub().later()
        await asyncio.sleep(2)
    async with objects(tmp_path, Table) as made:
        assert (await made.stub().both())[0] == 2


async def test_the_tables_of_a_reset_object_are_broken_with_it(tmp_path: Path) -> None:
    """Code that outlives its object gets the reason."""
    async with objects(tmp_path, Table) as made:
        await made.stub().leak()
        with pytest.raises(ObjectReset):
            await made.stub().add_and_abort()
        with pytest.raises(ObjectReset, match="as requested"):
            made.env.leaked.exec("SELECT 1")
        with pytest.raises(ObjectReset, match="as requested"):
            print(made.env.leaked.database_size)


async def test_a_backup_of_the_shared_file_has_the_tables(tmp_path: Path) -> None:
    """The file alone, copied while the object writes, is complete."""
    copied = tmp_path / "copy"
    copied.mkdir()
    async with objects(tmp_path, Table) as made:
        await made.stub().add("a", "b")
        with snapshot.one_instant([tmp_path / "objects.sqlite"]) as readers:
            await made.stub().add("later")
            snapshot.copy(readers[tmp_path / "objects.sqlite"], copied / "objects.sqlite")
    async with objects(copied, Table) as made:
        assert await made.stub().both() == [2, 2]


async def test_without_room_for_the_copy_the_tables_are_unavailable(tmp_path: Path) -> None:
    """The entries are not, and the tables come back with the room."""
    async with objects(tmp_path, Table) as made:
        (tmp_path / "objects-sql").touch()
        with pytest.raises(
            RemoteError, match=r"^StoreUnavailable: the tables cannot be used: .*objects-sql needs room"
        ):
            await made.stub().add("lost")
        await made.stub().put("k", 1)
        (tmp_path / "objects-sql").unlink()
        assert await made.stub().add("kept") == 1


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 50 KB, so that a transaction of 600 rows is too large for it."""
    pragmas = [
        f"cache_size = -{object_sql.CACHE_KB // 10}" if "cache" in each else each for each in object_sql._PRAGMAS
    ]
    monkeypatch.setattr(object_sql, "_PRAGMAS", pragmas)


@pytest.mark.usefixtures("small_cache")
async def test_a_long_log_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that a transaction made long which was rolled back: each commit would read all of it."""
    monkeypatch.setattr(object_sql, "LOG_BYTES_MAX", 400_000)
    async with objects(tmp_path, Table) as made:
        await made.stub().add("a")
        assert await made.stub().big_and_small() == 2
        assert files(tmp_path) == [f"{made.stub().id.hex}.sqlite"]
        monkeypatch.setattr(object_sql, "LOG_BYTES_MAX", 20_000)
        for _ in range(50):
            await made.stub().add("x" * 500)
            assert sum(file.stat().st_size for file in (tmp_path / "objects-sql").glob("*-wal")) < 30_000
        assert await made.stub().both() == [52, 52]


async def contents(directory: Path) -> tuple[list[str], list[Any]]:
    """Everything in the tables of the object, as SQL and as rows, read by a new process."""
    async with objects(directory, Table) as made:
        rows = await made.stub().run("PRAGMA quick_check", "SELECT * FROM t", "SELECT sql FROM sqlite_master")
        (file,) = (directory / "objects-sql").glob("*.sqlite")
        assert file.stat().st_size % object_sql.PAGE_BYTES == 0
        return rows[0][0], rows[1:]


@pytest.mark.usefixtures("small_cache")
@pytest.mark.parametrize("seed", range(6))
async def test_the_shared_file_gets_every_changed_page(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the turns do, a copy that is written anew has the same rows, and SQLite finds it whole."""
    chance = Random(seed)
    monkeypatch.setattr(object_sql, "LOG_BYTES_MAX", chance.choice([5_000, 50_000, 4_000_000]))
    texts = ["x" * chance.randint(0, 5000) for _ in range(50)]
    for _ in range(4):
        async with objects(tmp_path, Table) as made:
            for _ in range(25):
                first = chance.randint(1, 60)
                turn = chance.choice(
                    [
                        ("add", chance.choices(texts, k=chance.randint(1, 8))),
                        ("run", [f"DELETE FROM t WHERE id % {first} = 1"]),
                        ("run", [f"UPDATE t SET text = text || 'y' WHERE id > {first}"]),
                        ("run", ["CREATE INDEX IF NOT EXISTS i ON t (text)"]),
                        ("run", ["DROP INDEX IF EXISTS i"]),
                        ("run", ["DELETE FROM t"]),
                        ("big_and_small", []),
                        ("clear", []),
                    ]
                )
                await made.stub().add()
                await getattr(made.stub(), turn[0])(*turn[1])
            await made.stub().add("last")
            expected = await made.stub().run("SELECT * FROM t", "SELECT sql FROM sqlite_master")
        assert await contents(tmp_path) == (["ok"], expected)


async def test_an_error_of_sqlite_reaches_the_caller(tmp_path: Path) -> None:
    """With the statement, and the object goes on."""
    async with objects(tmp_path, Table) as made:
        with pytest.raises(RemoteError, match=r"^StoreError: SQL: SELECT \* FROM nope: no such table: nope; the stat"):
            await made.stub().run("SELECT * FROM nope")
        assert await made.stub().add("a") == 1
