"""DB: the interface of D1, atomic transactions, errors with the fix."""

import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ConstraintKind, ConstraintViolated, StoreError, StoreUnavailable, UsageError, ValueRefused
from holdfast.local.database import SqliteDatabase
from holdfast.statements import INT_MAX
from holdfast.testing.virtual_time import run_virtual
from holdfast.types import DBMeta
from holdfast_testing.linux import only_linux, open_files
from holdfast_testing.stores import ITEMS, item_names, make_file, open_database

PARTS = "CREATE TABLE parts (item INTEGER NOT NULL REFERENCES items (id))"

BEYOND_BMP_AND_NUL = "\0 zażółć 🐍 \U0010ffff"


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (True, 1),
        (False, 0),
        (INT_MAX, INT_MAX),
        (-INT_MAX - 1, -INT_MAX - 1),
        (0.1, 0.1),
        (b"\0\xff", b"\0\xff"),
        (BEYOND_BMP_AND_NUL, BEYOND_BMP_AND_NUL),
    ],
)
async def test_values_come_back_as_they_went(tmp_path: Path, value: str | float | None, stored: object) -> None:
    """Text, integers, floats, bytes and None are kept exactly; a bool becomes 1 or 0."""
    async with open_database(tmp_path, "CREATE TABLE v (x)") as database:
        await database.prepare("INSERT INTO v VALUES (?)").bind(value).run()
        row = await database.prepare("SELECT x FROM v").first()

    assert row == {"x": stored}
    assert row is not None
    assert type(row["x"]) is type(stored)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (2**63, "bind amounts as text"),
        (-(2**63) - 1, "bind amounts as text"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        ("half \ud83d", "lone surrogate"),
        (["list"], "of type list"),
        ({"a": 1}, "of type dict"),
    ],
)
async def test_a_value_that_cannot_be_kept_is_refused_at_bind(tmp_path: Path, value: str, complaint: str) -> None:
    """The message has the place of the value and the fix. No value is changed to fit."""
    async with open_database(tmp_path) as database:
        with pytest.raises(ValueRefused, match=f"value 2 .*{complaint}"):
            database.prepare("SELECT ?, ?").bind(1, value)


async def test_meta_reports_what_a_statement_did(tmp_path: Path) -> None:
    """`changes` and `last_row_id` are right for each kind of write, and zero for a read."""
    async with open_database(tmp_path, ITEMS) as database:
        metas = [
            (await database.prepare(sql).run()).meta
            for sql in (
                "INSERT INTO items (id, name) VALUES (7, 'a'), (8, 'b')",
                "INSERT OR IGNORE INTO items (id, name) VALUES (9, 'a')",
                "WITH x AS (SELECT 'c' AS name) INSERT INTO items (name) SELECT name FROM x",
                "UPDATE items SET n = n + 1 WHERE id >= 8",
                "DELETE FROM items WHERE id = 7",
                "SELECT id FROM items",
            )
        ]

    assert metas == [
        DBMeta(2, 8, rows_read=0, rows_written=2),
        DBMeta(0, 8, rows_read=0, rows_written=0),
        DBMeta(1, 9, rows_read=0, rows_written=1),
        DBMeta(2, 9, rows_read=0, rows_written=2),
        DBMeta(1, 9, rows_read=0, rows_written=1),
        DBMeta(0, 0, rows_read=2, rows_written=0),
    ]


async def test_first_returns_a_row_or_none(tmp_path: Path) -> None:
    """`first` returns the first row as a dict, None if there is none, and the row of RETURNING."""
    async with open_database(tmp_path, ITEMS) as database:
        insert = database.prepare("INSERT INTO items (name) VALUES (?) RETURNING id, name")

        assert await database.prepare("SELECT * FROM items").first() is None
        assert await insert.bind("a").first() == {"id": 1, "name": "a"}
        assert await insert.bind("b").first() == {"id": 2, "name": "b"}
        assert await database.prepare("SELECT name FROM items ORDER BY id").first() == {"name": "a"}


@pytest.mark.parametrize(
    ("sql", "values", "joined"),
    [
        ("SELECT ? || ? AS joined", ("a", "b"), "ab"),
        ("SELECT ?1 || ?2 || ?1 AS joined", ("a", "b"), "aba"),
        ("SELECT ?2 || ?1 AS joined", ("a", "b"), "ba"),
        ("SELECT ?1||?2||?3||?4||?5||?6||?7||?8||?9||?10||?11 AS joined", tuple("abcdefghijk"), "abcdefghijk"),
        ("SELECT '?1' || ? AS joined", ("a",), "?1a"),
        ("SELECT '?1' AS joined", (), "?1"),
    ],
)
async def test_places_with_and_without_a_number_get_their_values(
    tmp_path: Path, sql: str, values: tuple[str, ...], joined: str
) -> None:
    """Without a warning of any Python: 3.12.0 to 3.12.3 warn about a sequence of values for `?1`."""
    async with open_database(tmp_path) as database:
        assert await database.prepare(sql).bind(*values).first() == {"joined": joined}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("sql", "values", "joined"),
    [("SELECT ?2 AS joined", ("a", "b"), "b"), ("SELECT ?1 || ? AS joined", ("a", "b"), "ab")],
)
async def test_places_with_a_gap_or_of_both_kinds_get_their_values(
    tmp_path: Path, sql: str, values: tuple[str, ...], joined: str
) -> None:
    """As on D1; we write no such statement."""
    async with open_database(tmp_path) as database:
        assert await database.prepare(sql).bind(*values).first() == {"joined": joined}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("values", [(), ("a",), ("a", "b", "c")])
async def test_too_few_or_too_many_values_are_refused(tmp_path: Path, values: tuple[str, ...]) -> None:
    """A statement of two places runs with two values only."""
    async with open_database(tmp_path) as database:
        for sql in ("SELECT ?1 || ?2", "SELECT ? || ?"):
            with pytest.raises(UsageError, match="uses 2"):
                await database.prepare(sql).bind(*values).first()


async def test_bind_leaves_the_statement_as_it_was(tmp_path: Path) -> None:
    """A statement is prepared once and bound many times."""
    async with open_database(tmp_path) as database:
        question = database.prepare("SELECT ?1 AS a, ?2 AS b")
        first, second = question.bind(1, 2), question.bind(3, 4)

        assert await second.first() == {"a": 3, "b": 4}
        assert await first.first() == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("INSERT INTO items (name) VALUES ('taken')", "unique"),
        ("INSERT INTO items (id) VALUES (1)", "unique"),
        ("INSERT INTO parts VALUES (404)", "foreign_key"),
        ("INSERT INTO items (n) VALUES (-1)", "check"),
        ("INSERT INTO items (n) VALUES (NULL)", "not_null"),
    ],
)
async def test_a_batch_that_breaks_a_rule_leaves_nothing(tmp_path: Path, sql: str, kind: ConstraintKind) -> None:
    """Each kind of broken rule has its own `kind`, and undoes the statements before it."""
    async with open_database(tmp_path, ITEMS, PARTS, "INSERT INTO items (id, name) VALUES (1, 'taken')") as database:
        before = database.prepare("INSERT INTO items (name) VALUES ('before')")
        with pytest.raises(ConstraintViolated, match="nothing of the call was written") as caught:
            await database.batch([before, database.prepare(sql), before])

        assert caught.value.kind == kind
        assert await item_names(database) == ["taken"]


async def test_a_batch_returns_one_result_per_statement(tmp_path: Path) -> None:
    """A later statement sees what an earlier one wrote. An empty batch returns no results."""
    async with open_database(tmp_path, ITEMS) as database:
        insert = database.prepare("INSERT INTO items (name) VALUES (?)")
        results = await database.batch([insert.bind("a"), database.prepare("SELECT name FROM items"), insert.bind("b")])

        assert [result.results for result in results] == [[], [{"name": "a"}], []]
        assert [result.meta.last_row_id for result in results] == [1, 1, 2]
        assert await database.batch([]) == []


@pytest.mark.parametrize(
    "sql",
    [
        "BEGIN",
        "  commit",
        "/* a */ -- b\n ROLLBACK",
        "SAVEPOINT a",
        "\ufeffEND",
        "ATTACH 'x' AS y",
        "VACUUM INTO 'copy'",
        "PRAGMA synchronous = OFF",
        "pragma/**/journal_mode=delete",
        "PRAGMA main.foreign_keys = OFF",
    ],
)
async def test_transactions_and_settings_stay_with_the_platform(tmp_path: Path, sql: str) -> None:
    """Statements that would open a transaction, another file or change the connection are refused."""
    async with open_database(tmp_path) as database:
        with pytest.raises(UsageError):
            database.prepare(sql)


async def test_harmless_pragmas_are_allowed(tmp_path: Path) -> None:
    """Those that D1 allows to read a schema work here too."""
    async with open_database(tmp_path, ITEMS) as database:
        columns = (await database.prepare("PRAGMA table_info(items)").all()).results

    assert [column["name"] for column in columns] == ["id", "name", "n"]


@pytest.mark.parametrize(
    ("sql", "values", "error", "complaint"),
    [
        ("SELEC 1", (), StoreError, "SELEC 1: near .* syntax error"),
        ("SELECT ?", (), UsageError, "Incorrect number of bindings"),
        ("SELECT 1; SELECT 2", (), UsageError, "one statement at a time"),
        (f"SELECT {', '.join('?' * 101)}", (1,) * 101, StoreError, "too many"),
        ("SELECT zeroblob(2000001)", (), StoreError, "too big"),
    ],
)
async def test_a_mistake_is_named(
    tmp_path: Path, sql: str, values: tuple[int, ...], error: type[Exception], complaint: str
) -> None:
    """Mistakes of the caller and D1's limits have their own errors, with SQLite's reason in them."""
    async with open_database(tmp_path) as database:
        with pytest.raises(error, match=complaint) as caught:
            await database.prepare(sql).bind(*values).all()

        assert type(caught.value) is error


async def test_a_full_disk_undoes_the_batch_and_the_next_one_works(tmp_path: Path) -> None:
    """Without space the call raises StoreUnavailable and writes nothing. With space the next call works."""
    async with open_database(tmp_path, ITEMS) as database:
        insert = database.prepare("INSERT INTO items (name) VALUES (?)")
        await insert.bind("kept").run()
        await database._writer.run(lambda connection: connection.execute("PRAGMA max_page_count = 1"))
        with pytest.raises(StoreUnavailable, match="full"):
            await database.batch([insert.bind("lost"), insert.bind("x" * 100_000)])

        assert await item_names(database) == ["kept"]

        await database._writer.run(lambda connection: connection.execute("PRAGMA max_page_count = 100000"))
        await insert.bind("y" * 100_000).run()

        assert await item_names(database) == ["kept", "y" * 100_000]


async def test_a_file_that_another_program_locks_is_unavailable_not_broken(tmp_path: Path) -> None:
    """A lock that outlasts the busy timeout is `StoreUnavailable`. The same call works afterwards."""
    async with open_database(tmp_path, ITEMS) as database:
        insert = database.prepare("INSERT INTO items (name) VALUES ('x')")
        await database._writer.run(lambda connection: connection.execute("PRAGMA busy_timeout = 1"))
        other = sqlite3.connect(tmp_path / "db.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            await insert.run()
        other.close()
        await insert.run()

        assert await item_names(database) == ["x"]


async def test_each_connection_has_the_settings_that_durability_needs(tmp_path: Path) -> None:
    """WAL, an fsync per commit, foreign keys; and a reader that cannot write."""
    async with open_database(tmp_path) as database:
        for thread, query_only in ((database._writer, 0), (database._reader, 1)):
            settings = await thread.run(
                lambda connection: [
                    connection.execute(f"PRAGMA {name}").fetchone()[0]
                    for name in ("journal_mode", "synchronous", "foreign_keys", "query_only")
                ]
            )

            assert settings == ["wal", 2, 1, query_only]


@only_linux
async def test_a_closed_database_leaves_no_file_open(tmp_path: Path) -> None:
    """Neither the reader's nor the writer's; an error names eighty characters of its statement."""
    path = make_file(tmp_path / "db.sqlite", "CREATE TABLE t (a)")
    before = open_files()
    database = SqliteDatabase(path)
    await database.prepare("INSERT INTO t VALUES (1)").run()
    with pytest.raises(StoreError) as refused:
        await database.prepare("SELECT nothing_of_this_name" + " " * 5 + "x" * 200 + " FROM t").all()
    await database.close()

    assert open_files() == before
    assert f"DB: SELECT nothing_of_this_name {'x' * 52}:" in str(refused.value)


STATEMENTS = {
    "put": "INSERT INTO items (id, n) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET n = ?2",
    "insert": "INSERT INTO items (id, n) VALUES (?1, ?2)",
    "delete": "DELETE FROM items WHERE id = ?1 AND n <> ?2",
    "add": "UPDATE items SET n = n + ?2 WHERE id = ?1",
}
BATCH = st.lists(st.tuples(st.sampled_from(sorted(STATEMENTS)), st.integers(0, 4), st.integers(-2, 3)), max_size=6)


def in_model(table: dict[int, int], batch: list[tuple[str, int, int]]) -> dict[int, int] | None:
    """The table after the batch, or None if a rule of the schema forbids one of its steps."""
    table = dict(table)
    for verb, key, number in batch:
        if verb == "insert" and key in table:
            return None
        if verb in {"put", "insert"}:
            table[key] = number
        elif verb == "add" and key in table:
            table[key] += number
        elif verb == "delete" and table.get(key) != number:
            table.pop(key, None)
        if table.get(key, 0) < 0:
            return None
    return table


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(BATCH, max_size=6))
def test_batches_take_effect_completely_or_not_at_all(batches: list[list[tuple[str, int, int]]]) -> None:
    """For any mix of statements the table equals a model that applies whole batches."""

    async def scenario(directory: Path) -> None:
        model: dict[int, int] = {}
        async with open_database(directory, ITEMS) as database:
            for batch in batches:
                after = in_model(model, batch)
                prepared = [database.prepare(STATEMENTS[verb]).bind(key, n) for verb, key, n in batch]
                if after is None:
                    with pytest.raises(ConstraintViolated):
                        await database.batch(prepared)
                else:
                    await database.batch(prepared)
                    model = after
                rows = (await database.prepare("SELECT id, n FROM items").all()).results

                assert {row["id"]: row["n"] for row in rows} == model

    with TemporaryDirectory() as directory:
        run_virtual(scenario(Path(directory)))
