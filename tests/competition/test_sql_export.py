"""Agents and claims from an export in SQL: every value comes back, and nothing of the file is executed."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.roster import REFERENCE_SCHEMA, address, open_roster, rows
from tocsin.commands.import_agents import TableCounts, import_rows, read_rows
from tocsin.competition.agent_rows import COLUMNS, ImportRow, RowError
from tocsin.competition.sql_export import TOKEN_MAX, read_export

SCHEMA = """CREATE TABLE "agents" ("btc_address" TEXT, 'stx_address' TEXT, display_name TEXT DEFAULT (';,(')
  , PRIMARY KEY (btc_address));"""
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


def cut(text: str, size: int) -> Iterable[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def shell_quoted(text: str) -> str:
    """As SQLite's shell and D1 write a text: on one line."""
    quoted = "'" + text.replace("'", "''") + "'"
    for char, escape, code in (("\n", "\\n", 10), ("\r", "\\r", 13)):
        if char in text:
            quoted = f"replace({quoted.replace(char, escape)},'{escape}',char({code}))"
    return quoted


@pytest.mark.slow
@given(
    st.lists(st.dictionaries(st.sampled_from(list(COLUMNS["agents"])), TEXTS | st.none()), max_size=4),
    st.integers(1, 50),
)
@example([{"display_name": "a''b\n'; DROP TABLE agents; --", "owner": "/* X'00' \"`["}], 1)
def test_what_sqlite_dumps_comes_back_equal(agents: list[dict[str, Any]], size: int) -> None:
    """Every text, in pieces of any size, among tables, indexes and triggers that are not imported."""
    given_rows = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(REFERENCE_SCHEMA)
        connection.execute("INSERT INTO inbox (body) SELECT x'00ff27' WHERE 0")
        for number, fields in enumerate(agents):
            required = {"stx_public_key": "k", "verified_at": "v", "referral_code": str(number)}
            row = {**required, **{k: v for k, v in fields.items() if v is not None}}
            row |= {
                "btc_address": f"bc1q{number}",
                "stx_address": address(number),
                "erc8004_agent_id": number * 2**53,
                "referral_code": f"r{number}",
                "referred_by_btc": None,
            }
            names = ", ".join(row)
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO agents ({names}) VALUES ({marks})", tuple(row.values()))
            claim = (f"bc1q{number}", "verified", number, "it's; \n")
            connection.execute(
                "INSERT INTO claims (btc_address, status, reward_satoshis, tweet_url) VALUES (?, ?, ?, ?)",
                claim,
            )
            given_rows.append(row)
        script = "PRAGMA defer_foreign_keys=TRUE;\n" + "\n".join(connection.iterdump())

    found = list(read_export(cut(script, size)))

    assert [row.fields for row in found if isinstance(row, ImportRow) and row.table == "agents"] == [
        {name: row.get(name) for name in COLUMNS["agents"]} for row in given_rows
    ]
    claims = [row.fields for row in found if isinstance(row, ImportRow) and row.table == "claims"]
    assert [claim["reward_satoshis"] for claim in claims] == list(range(len(agents)))
    assert {claim["tweet_url"] for claim in claims} <= {"it's; \n"}
    assert len(found) == 2 * len(agents)


@given(TEXTS.filter(lambda text: "\\n" not in text and "\\r" not in text))
def test_texts_as_the_shell_writes_them_come_back(text: str) -> None:
    """Line ends are written as replace(…, char(10)), as `wrangler d1 export` does."""
    script = f"{SCHEMA} INSERT INTO agents VALUES('bc1','SP',{shell_quoted(text)});"

    (found,) = read_export([script])

    assert isinstance(found, ImportRow)
    assert found.fields["display_name"] == text


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT INTO agents VALUES ('a','b','c'),('d','e',NULL)", [["a", "b", "c"], ["d", "e", None]]),
        ("INSERT INTO `agents` (display_name, [btc_address]) VALUES ('x', 'y')", [["x", "y"]]),
        ("insert or replace into main.agents values ('a', -1, +2.5e1)", [["a", -1, 25.0]]),
        ("REPLACE INTO agents VALUES (X'4142', x'', 9)", [[b"AB", b"", 9]]),
        ("INSERT INTO agents VALUES (unistr('a\\u000ab\\\\'), char(228), '')", [["a\nb\\", "ä", ""]]),
        ("INSERT INTO other VALUES (SELECT ';', f(1))", []),
        ("CREATE TABLE IF NOT EXISTS x AS SELECT 1; -- INSERT INTO agents VALUES (1)", []),
        ("CREATE TRIGGER t AFTER INSERT ON x BEGIN INSERT INTO agents VALUES (1); END", []),
        ("ATTACH 'x.db' AS x; CREATE VIEW v AS SELECT 1; .read /etc/passwd", []),
        ("", []),
    ],
)
def test_statements_that_are_understood_or_skipped(statement: str, expected: list[list[Any]]) -> None:
    """Rows with and without names of columns; statements about other tables are skipped."""
    found = list(read_export([SCHEMA + statement]))

    assert [list(row.fields.values()) for row in found if isinstance(row, ImportRow)] == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("script", "line", "message"),
    [
        ("INSERT INTO agents VALUES ('a')", 1, "export it together with its schema"),
        (SCHEMA + "\nINSERT INTO agents VALUES ('a')", 3, "1 values for the 3 columns of agents"),
        (SCHEMA + "\nINSERT INTO agents SELECT 1", 3, "without VALUES"),
        (SCHEMA + "INSERT INTO agents VALUES (1, 2, load_extension('x'))", 2, "load_extension(…) is not"),
        (SCHEMA + "INSERT INTO agents VALUES (1, 2, (SELECT 3))", 2, "expected a value, found '('"),
        (SCHEMA + "INSERT INTO agents VALUES (1, 2, 3) ON CONFLICT DO NOTHING", 2, "expected ; after"),
        (SCHEMA + "INSERT INTO agents VALUES (1, 2, 3 + 4)", 2, "expected ), found '+'"),
        (SCHEMA + "INSERT INTO agents VALUES (1, 2, '3", 2, "has no end"),
        (SCHEMA + "/* and so on", 2, "has no end"),
        (SCHEMA + "INSERT INTO agents VALUES (" + "char(" * 100_000, 2, "expected a value, found 'CHAR'"),
        (SCHEMA + f"INSERT INTO agents VALUES ({'1,' * 100_000}", 2, "more than 100 columns"),
        (SCHEMA + "INSERT INTO agents VALUES (replace(replace('" + "a" * 9999 + "','a','"
         + "b" * 200 + "'),'b','" + "c" * 999 + "'), 2, 3)", 2, "replace(…) is not understood"),
        (SCHEMA + "INSERT INTO agents VALUES ('" + "x" * (TOKEN_MAX + 2_000_000), 2, "is longer than"),
        (f"CREATE TABLE agents ({'a,' * 1000}", 1, "more than 100 columns"),
    ],
    ids=range(14),
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_its_line(script: str, line: int, message: str) -> None:
    """Hostile or cut off: one error, no recursion, no growth of memory."""
    found = list(read_export(cut(script, 1_000_000)))

    (refusal,) = (row for row in found if isinstance(row, RowError))
    assert refusal.line == line
    assert message in refusal.reason


@given(st.text("'\"`[]()/*-;,. \nx0aINSERTOVLUgtsCEB", max_size=80), st.integers(1, 9))
def test_any_text_is_read_to_its_end(text: str, size: int) -> None:
    """Whatever it contains, in pieces of any size: the same rows, and at most one error."""
    script = SCHEMA + "INSERT INTO agents VALUES " + text

    found = list(read_export(cut(script, size)))

    assert found == list(read_export([script]))
    assert sum(isinstance(row, RowError) for row in found) <= 1


def test_an_export_of_the_reference_is_imported(tmp_path: Path) -> None:
    """Its column order, its claims before its agents, and a column that we do not have."""
    file = tmp_path / "export.SQL"
    values = "'key',NULL,NULL,'Ann''s',NULL,'ann.btc',NULL,'2026-05-01',NULL,7,NULL,NULL,NULL,NULL,NULL,'r'"
    file.write_text(
        "\ufeffPRAGMA defer_foreign_keys=TRUE;\r\n"
        + REFERENCE_SCHEMA
        + "INSERT INTO claims VALUES('verified','bc1q1',NULL,'u',NULL,NULL,5000,NULL);\r\n"
        + f"INSERT INTO \"agents\" VALUES('bc1q1','{address(1)}',{values},NULL,'left out');\r\n",
        encoding="utf-8",
        newline="",
    )
    with open_roster(tmp_path) as connection:
        first, again = (import_export(connection, file) for _ in range(2))
        (agent,) = rows(connection, "agents")
        (tier,) = connection.execute("SELECT tier FROM agent_tiers").fetchall()

    assert first == {"agents": TableCounts(1, 0, 0), "claims": TableCounts(1, 0, 0)}
    assert again == {"agents": TableCounts(0, 0, 1), "claims": TableCounts(0, 0, 1)}
    assert (agent["display_name"], agent["bns_name"], agent["referral_code"]) == ("Ann's", "ann.btc", "r")
    assert tier == ("eligible",)


def import_export(connection: sqlite3.Connection, file: Path) -> Any:
    report = import_rows(connection, read_rows(file, lambda _: None))
    connection.execute("DROP TABLE incoming")
    assert report.refused == []
    return report.imported


def test_rows_of_an_export_are_checked_like_lines(tmp_path: Path) -> None:
    """A blob where a text belongs, a claim without an agent, an unknown status: nothing is imported."""
    file = tmp_path / "export.sql"
    file.write_text(
        "INSERT INTO agents (btc_address, stx_address, display_name) VALUES\n"
        f"('bc1q1', '{address(1)}', X'00'),\n('bc1q2', '{address(2)}', NULL);\n"
        "INSERT INTO claims (btc_address, status) VALUES ('bc1q2', 'done'),\n"
        "('bc1q9', 'verified'), (1, 'failed');"
    )
    with open_roster(tmp_path) as connection:
        report = import_rows(connection, read_rows(file, lambda _: None))
        assert rows(connection, "agents") == []

    assert [(refusal.line, refusal.reason) for refusal in report.refused] == [
        (2, "display_name: expected text or null, found a bytes"),
        (4, "status: expected one of pending, verified, rewarded, failed, found 'done'"),
        (5, "btc_address: expected text or null, found 1"),
        (5, "no agent bc1q9 is in this file, and none is registered"),
    ]
