"""Migrations: applied once, in order, completely; every difference is refused with its name."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import MigrationFailed, SchemaMismatch
from holdfast.local import sqlite_file
from holdfast.local.migrations import Migration, check, describe, load, migrate, plain, schema_of, split
from holdfast.statements import first_word
from holdfast_testing.stores import make_file

AGENTS = "CREATE TABLE agents (id INTEGER PRIMARY KEY, name TEXT NOT NULL);"
SWAPS = """
-- What an agent traded; it's here that text with a ; is tested.
CREATE TABLE swaps (txid TEXT PRIMARY KEY, sender INTEGER REFERENCES agents (id), note TEXT DEFAULT ';');
CREATE TRIGGER swaps_lower AFTER INSERT ON swaps BEGIN
  UPDATE swaps SET txid = lower(txid) WHERE txid = new.txid;
END;
"""
FILES = {"0001_create_agents.sql": AGENTS, "0002_create_swaps.sql": SWAPS}


def write(directory: Path, files: dict[str, str]) -> Path:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    return write(tmp_path / "migrations", FILES)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite_file.connect(make_file(tmp_path / "db.sqlite"))) as connection:
        yield connection


def test_migrations_are_applied_once_and_recorded(connection: sqlite3.Connection, migrations: Path) -> None:
    """The first call applies all in order, the second none. The record has number, name and time."""
    first = migrate(connection, load(migrations), "db.sqlite", now=1000)
    second = migrate(connection, load(migrations), "db.sqlite", now=2000)
    records = connection.execute("SELECT number, name, applied_at FROM tocsin_migrations").fetchall()

    assert [migration.name for migration in first] == ["0001_create_agents", "0002_create_swaps"]
    assert second == []
    assert records == [(1, "0001_create_agents", 1000), (2, "0002_create_swaps", 1000)]

    connection.execute("INSERT INTO swaps (txid) VALUES ('0xAB')")

    assert connection.execute("SELECT txid, note FROM swaps").fetchall() == [("0xab", ";")]


def test_a_later_migration_finds_the_data_of_an_earlier_one(connection: sqlite3.Connection, migrations: Path) -> None:
    """An update applies only what is new, to tables that are in use."""
    migrate(connection, load(migrations)[:1], "db.sqlite", now=1000)
    connection.execute("INSERT INTO agents (name) VALUES ('a')")
    write(migrations, {"0003_add_score.sql": "ALTER TABLE agents ADD COLUMN score INTEGER NOT NULL DEFAULT 5"})
    applied = migrate(connection, load(migrations), "db.sqlite", now=2000)

    assert [migration.number for migration in applied] == [2, 3]
    assert connection.execute("SELECT * FROM agents").fetchall() == [(1, "a", 5)]


def test_a_failing_migration_leaves_nothing(connection: sqlite3.Connection, migrations: Path) -> None:
    """Earlier ones stay, its own first statements are undone. The message has its name and the reason."""
    write(migrations, {"0003_breaks.sql": "CREATE TABLE extra (a); INSERT INTO nowhere VALUES (1);"})
    with pytest.raises(MigrationFailed, match=r"0003_breaks failed \(no such table: nowhere\)"):
        migrate(connection, load(migrations), "db.sqlite", now=1000)

    assert not connection.in_transaction
    assert [name for (name,) in connection.execute("SELECT name FROM tocsin_migrations")] == [
        "0001_create_agents",
        "0002_create_swaps",
    ]
    assert not any("extra" in line for line in describe(connection))


def test_a_migration_may_not_orphan_rows(connection: sqlite3.Connection, migrations: Path) -> None:
    """A migration that defers the foreign keys and leaves a broken one is undone."""
    write(
        migrations, {"0003_orphans.sql": "PRAGMA defer_foreign_keys = ON; INSERT INTO swaps VALUES ('0x1', 404, '');"}
    )
    with pytest.raises(MigrationFailed, match="a row of swaps would refer to a row of agents"):
        migrate(connection, load(migrations), "db.sqlite", now=1000)

    assert connection.execute("SELECT count(*) FROM swaps").fetchone() == (0,)


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("0001_create_agents.sql", AGENTS + "-- edited", r"0001_create_agents\.sql was edited .* number 0003"),
        ("0002_create_swaps.sql", None, "db.sqlite is newer than this code: it has migration 0002_create_swaps"),
    ],
)
def test_code_that_differs_from_what_was_applied_is_refused(
    connection: sqlite3.Connection, migrations: Path, file: str, text: str | None, complaint: str
) -> None:
    """An edited migration and a database newer than the code stop the start, with the fix."""
    migrate(connection, load(migrations), "db.sqlite", now=1000)
    if text is None:
        (migrations / file).unlink()
    else:
        (migrations / file).write_text(text, encoding="utf-8")
    with pytest.raises(SchemaMismatch, match=complaint):
        migrate(connection, load(migrations), "db.sqlite", now=2000)


def test_a_database_of_another_version_is_refused(connection: sqlite3.Connection, migrations: Path) -> None:
    """The same number with another name means two versions of the code."""
    migrate(connection, load(migrations), "db.sqlite", now=1000)
    (migrations / "0002_create_swaps.sql").rename(migrations / "0002_other.sql")
    with pytest.raises(SchemaMismatch, match=r"0002_create_swaps as its number 0002, this code has\s0002_other"):
        check(connection, load(migrations), "db.sqlite")


def test_line_ends_do_not_change_a_migration(connection: sqlite3.Connection, migrations: Path) -> None:
    """A checkout with Windows line ends is the same migration."""
    migrate(connection, load(migrations), "db.sqlite", now=1000)
    path = migrations / "0002_create_swaps.sql"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))

    assert check(connection, load(migrations), "db.sqlite") == []


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"0001_a.sql": "", "0003_c.sql": ""}, "0003_c.sql should have number 0002"),
        ({"0001_a.sql": "", "0001_b.sql": ""}, "0001_b.sql should have number 0002"),
        ({"first.sql": ""}, "rename it to the form 0001_what_it_does.sql"),
        (
            {"0001_a.sql": "CREATE TABLE t (a);\nCOMMIT;"},
            "COMMIT is reserved for the platform.*each migration is already one transaction",
        ),
        ({"0001_a.sql": "PRAGMA foreign_keys = OFF;"}, "PRAGMA foreign_keys is not available"),
    ],
)
def test_files_that_cannot_be_a_history_are_refused(tmp_path: Path, files: dict[str, str], complaint: str) -> None:
    """Gaps, duplicates, wrong names, and statements that would break the transaction of a file."""
    with pytest.raises(SchemaMismatch, match=complaint):
        load(write(tmp_path / "migrations", files))


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ("ALTER TABLE agents ADD COLUMN extra TEXT", ["unexpected: table agents: extra text"]),
        ("DROP TRIGGER swaps_lower", ["missing:    trigger swaps_lower after insert on swaps begin update swaps"]),
        ("CREATE INDEX handmade ON agents (name)", ["unexpected: index handmade on agents"]),
        (
            "ALTER TABLE agents RENAME COLUMN name TO label",
            ["missing:    table agents: name text not null", "unexpected: table agents: label text not null"],
        ),
    ],
)
def test_a_schema_changed_by_hand_is_refused_line_by_line(
    connection: sqlite3.Connection, migrations: Path, change: str, lines: list[str]
) -> None:
    """The message shows the missing and the unexpected lines. Nothing is written."""
    migrate(connection, load(migrations), "db.sqlite", now=1000)
    connection.execute(change)
    write(migrations, {"0003_more.sql": "CREATE TABLE more (a)"})
    before = connection.total_changes
    with pytest.raises(SchemaMismatch) as caught:
        migrate(connection, load(migrations), "db.sqlite", now=2000)

    assert connection.total_changes == before
    assert "table more" not in describe(connection)
    for line in lines:
        assert f"\n  {line}" in str(caught.value)


def test_a_foreign_database_is_refused(connection: sqlite3.Connection, migrations: Path) -> None:
    """A file with tables and without a record of migrations is not changed."""
    connection.execute("CREATE TABLE somebody_elses (a)")
    with pytest.raises(SchemaMismatch, match="unexpected: table somebody_elses"):
        migrate(connection, load(migrations), "db.sqlite", now=1000)


def test_what_sqlite_and_d1_keep_for_themselves_does_not_count(
    connection: sqlite3.Connection, migrations: Path
) -> None:
    """Their own tables do not count as a difference."""
    migrate(connection, load(migrations), "db.sqlite", now=1000)
    connection.execute("CREATE TABLE d1_migrations (id INTEGER PRIMARY KEY AUTOINCREMENT)")
    connection.execute("CREATE TABLE _cf_KV (key TEXT)")
    connection.execute("ANALYZE")

    assert check(connection, load(migrations), "db.sqlite") == []


STEPS = st.lists(
    st.sampled_from(
        [
            "CREATE TABLE t{n} (a INTEGER PRIMARY KEY, b TEXT DEFAULT 'x;y')",
            "CREATE TABLE t{n} (a);\nINSERT INTO t{n} VALUES ({n});\nALTER TABLE t{n} ADD COLUMN c INTEGER",
            "CREATE VIEW t{n} AS SELECT {n} AS a",
            "CREATE TABLE t{n} (a UNIQUE);\nCREATE INDEX i{n} ON t{n} (a) WHERE a > {n}",
        ]
    ),
    max_size=5,
)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(STEPS, st.data())
def test_however_a_history_is_cut_into_updates_the_schema_is_the_same(steps: list[str], data: st.DataObject) -> None:
    """Migrations applied in several starts give the same schema as all at once."""
    with TemporaryDirectory() as scratch:
        files = {f"{n:04}_step.sql": step.format(n=n) for n, step in enumerate(steps, 1)}
        history = load(write(Path(scratch) / "migrations", files))
        with closing(sqlite_file.connect(make_file(Path(scratch) / "db.sqlite"))) as connection:
            done = 0
            while done < len(history):
                until = data.draw(st.integers(done + 1, len(history)))
                assert len(migrate(connection, history[:until], "db.sqlite", now=0)) == until - done
                done = until

            assert check(connection, history, "db.sqlite") == []
            assert (*describe(connection),) == schema_of(*(sql for step in history for sql in step.statements))


def test_the_difference_of_a_schema_is_shown_up_to_twenty_lines(tmp_path: Path) -> None:
    """And how many more there are; twenty are shown without that."""
    migration = Migration(1, "0001_a", "", ("CREATE TABLE a (b TEXT)",))

    def shown(tables: int) -> str:
        names = [f"CREATE TABLE t{number:02} (b TEXT)" for number in range(tables)]
        path = make_file(tmp_path / f"{tables}.sqlite", *names)
        with (
            closing(sqlite3.connect(path)) as connection,
            pytest.raises(SchemaMismatch, match="differs from what its migrations created") as refused,
        ):
            check(connection, [migration], path.name)
        return str(refused.value)

    assert "more" not in shown(10)
    assert shown(10).count("unexpected: ") == 20
    assert shown(11).endswith("\n  and 2 more")
    assert shown(11).count("unexpected: ") == 20


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("CREATE TABLE t (a TEXT)", 'create table "t" (\n  [a]  text -- a comment\n)', True),
        ("CREATE TABLE t (a TEXT DEFAULT 'x')", "CREATE TABLE t (a TEXT DEFAULT 'X')", False),
        ("CREATE TABLE t (a TEXT)", "CREATE TABLE t (/* two\nlines */ a TEXT)", True),
        ("CREATE TABLE t (a TEXT, b TEXT)", "CREATE TABLE t (b TEXT, a TEXT)", False),
        ("CREATE TABLE t (a INT CHECK (a IN (1, 2)))", "CREATE TABLE t (a INT CHECK (a IN (1,2)))", True),
    ],
)
def test_two_statements_are_the_same_without_their_layout(one: str, other: str, *, same: bool) -> None:
    """Comments of several lines, quotes, case; but text is text."""
    assert (plain(one) == plain(other)) is same


STATEMENTS = [
    "SELECT 1",
    "INSERT INTO t VALUES ('a;b', \"c;d\")",
    "CREATE TRIGGER g AFTER INSERT ON t BEGIN UPDATE t SET a = 1; DELETE FROM t; END",
    "-- a comment; with a semicolon\nSELECT 2",
    "/* one; two */ SELECT ';'",
]


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("select 1", "SELECT"),
        (" \n\t\ufeff-- insert\n/* update\n*/delete from t", "DELETE"),
        ("--only a comment", ""),
        ("/* never closed", ""),
        ("", ""),
        ("1 select", ""),
    ],
)
def test_the_first_word_is_found_behind_what_sqlite_skips(sql: str, word: str) -> None:
    """White space, a byte order mark and both kinds of comments are skipped, and nothing else."""
    assert first_word(sql) == word


@pytest.mark.parametrize("unit", [" ", "/**/", "/* */ ", "-- x\n", "/*"])
def test_odd_text_is_not_slow(unit: str) -> None:
    """Thousands of comments without a statement are read once, not in every combination."""
    assert first_word(unit * 20_000 + "1") == ""


@given(st.lists(st.sampled_from(STATEMENTS), max_size=6), st.sampled_from([";", ";\n\n", " ;\n-- end;\n"]))
def test_a_script_is_split_where_sqlite_ends_a_statement(statements: list[str], between: str) -> None:
    """Semicolons in text, names, comments and triggers do not split. SQLite compiles every piece."""
    pieces = split(between.join(statements))

    assert len(pieces) == len(statements)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (a, b)")
        for written, piece in zip(statements, pieces, strict=True):
            assert piece.endswith(written)
            connection.execute(f"EXPLAIN {piece}")


def test_a_script_of_comments_has_no_statement() -> None:
    """Comments and empty statements are left out."""
    assert split("-- nothing; here\n;;/* at; all */") == []


@pytest.mark.parametrize(
    "sql",
    [
        "create table t (a integer primary key, b text default 'X; y', check (a > 1 or b <> '')) strict",
        """CREATE TABLE "t"(
             [a] INTEGER PRIMARY KEY, -- the key
             `b` TEXT DEFAULT 'X; y'
           , CHECK(a>1 OR b<>'')
        )STRICT""",
    ],
)
def test_layout_does_not_count(sql: str) -> None:
    """Layout, case, comments and quotes around names are removed. Text literals stay as they are."""
    assert plain(sql) == (
        "create table t",
        "a integer primary key",
        "b text default 'X; y'",
        "check ( a > 1 or b <> '' )",
        ") strict",
    )
