"""SQL text: the first word, the statements of a script, and a schema without its layout."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.local.migrations import plain, split
from holdfast.statements import first_word

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
