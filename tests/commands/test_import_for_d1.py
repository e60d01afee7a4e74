"""`tocsin import --d1-sql`: SQL that does to D1 what an import does locally."""

import json
import re
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from holdfast.errors import UsageError
from holdfast.local.migrations import split
from support.roster import address, line, open_roster, rows
from tocsin.cli import app
from tocsin.commands.rows import ImportReport, import_file, import_rows, write_d1_sql
from tocsin.errors import ImportRefused
from tocsin.swaps.agents import TABLES, ImportRow, Table, d1_statement, lines_of, read_line

HOSTILE = "O'Brien''; COMMIT; BEGIN TRANSACTION; é🔔\n\r\n-- /* \\ \" \\u0027 ?1 %s"
Tables = dict[str, list[dict[str, Any]]]


def prepare(directory: Path, *lines: str, name: str = "agents.jsonl") -> tuple[ImportReport, Path]:
    file, output = directory / name, directory / f"{name}.d1.sql"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return write_d1_sql(file, output, lambda _: None)[0], output


def tables(connection: sqlite3.Connection) -> Tables:
    return {table: rows(connection, table) for table in TABLES}


def load(connection: sqlite3.Connection, sql: Path) -> int:
    """Run a file as D1 does, in one transaction. Returns how many rows changed."""
    before = connection.total_changes
    with connection:
        connection.execute("BEGIN")
        for statement in split(sql.read_text(encoding="utf-8")):
            connection.execute(statement)
    return connection.total_changes - before


def test_the_sql_writes_what_an_import_writes(tmp_path: Path) -> None:
    """New agents, changed ones and unchanged ones, fields that are not given, nulls, and texts of any kind."""
    first = [
        line(1, display_name=HOSTILE, erc8004_agent_id=2**63 - 1, claim={"status": "pending", "tweet_url": HOSTILE}),
        line(2, description="kept", owner="kept", claim={"status": "verified", "reward_satoshis": 0}),
        line(3),
    ]
    second = [line(2, owner=None, claim={"status": "rewarded"}), line(3), line(4, description=HOSTILE * 100)]
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    with open_roster(tmp_path / "here") as here, open_roster(tmp_path / "there") as there:
        for number, lines in enumerate((first, second, second)):
            _, sql = prepare(tmp_path, *lines, name=f"{number}.jsonl")
            report = import_file(here, tmp_path / f"{number}.jsonl", lambda _: None)
            here.execute("DROP TABLE temp.incoming")
            changed = load(there, sql)

            assert tables(here) == tables(there)
            assert changed == sum(counts.new + counts.updated for counts in report.imported.values())
        written = tables(there)

    assert [agent["btc_address"] for agent in written["agents"]] == ["bc1q1", "bc1q2", "bc1q3", "bc1q4"]
    assert (written["agents"][0]["display_name"], written["agents"][0]["erc8004_agent_id"]) == (HOSTILE, 2**63 - 1)
    assert (written["agents"][1]["description"], written["agents"][1]["owner"]) == ("kept", None)
    assert written["claims"][1]["reward_satoshis"] == 0


def test_every_row_is_one_line_and_one_statement(tmp_path: Path) -> None:
    """Agents before their claims, in the order of the file."""
    lines = [line(n, description=HOSTILE, claim={"status": "verified"}) for n in (2, 1)]
    _, sql = prepare(tmp_path, *lines)
    written = sql.read_text(encoding="utf-8").splitlines()

    assert [re.findall(r"^INSERT INTO (\w+) .*(bc1q[0-9])", text) for text in written] == [
        [("agents", "bc1q2")],
        [("agents", "bc1q1")],
        [("claims", "bc1q2")],
        [("claims", "bc1q1")],
    ]
    with open_roster(tmp_path) as connection:
        assert load(connection, sql) == 4


def test_a_row_fits_up_to_the_last_byte_and_one_more_is_refused(tmp_path: Path) -> None:
    """The statement of the longest row has 99,000 bytes with its line end."""
    room = 99_000 - len(d1_statement("agents", json.loads(line(1, description=""))).encode())

    fits, sql = prepare(tmp_path, line(1, description="x" * room))
    refused, none = prepare(tmp_path, line(2), line(1, description="x" * (room + 1)), name="long.jsonl")

    assert fits.refused == []
    assert len(sql.read_bytes()) == 99_000
    [error] = refused.refused
    assert (error.line, error.reason) == (2, "it takes 99,001 bytes of SQL, and D1 accepts 99,000: shorten its texts")
    assert not none.exists()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_text_survives_and_nothing_ends_the_statement(text: str) -> None:
    """The output has none of the words at which wrangler cuts files, even within quotes."""
    [row] = [row for row in read_line(1, line(1, description=text).encode()) if isinstance(row, ImportRow)]
    statement = d1_statement("agents", row.fields)
    literal = statement[statement.index("json_each('[") + 12 : statement.rindex("]'")]

    assert not {"'", ";", "\n", "\r"} & set(literal)
    assert "BEGIN TRANSACTION" not in literal
    assert json.loads(literal) == row.fields
    assert (statement.count(";"), statement.count("\n"), statement[-2:]) == (1, 1, ";\n")


def test_the_words_that_wrangler_cuts_are_escaped() -> None:
    escaped = r'{"owner":"BEGIN\u0020TRANSACTION\u003b it\u0027s COMMIT\u003b"}'

    assert escaped in d1_statement("agents", {"owner": "BEGIN TRANSACTION; it's COMMIT;"})


@pytest.mark.parametrize("table", ["agents", "claims"])
def test_a_statement_has_no_word_that_keeps_wrangler_from_splitting(table: Table) -> None:
    """After CASE or BEGIN, wrangler takes the rest of the file for one statement."""
    assert re.findall(r"\b(?:CASE|BEGIN)\b", d1_statement(table, {}), re.IGNORECASE) == []


def test_what_an_import_refuses_is_refused_and_no_file_is_written(tmp_path: Path) -> None:
    """The same lines for the same reasons."""
    lines = [
        line(1),
        line(1, stx_address=address(9)),
        line(2, stx_address=address(1)),
        line(3, stx_address="SP123"),
        line(4, claim={"status": "no"}),
        "{",
    ]
    report, sql = prepare(tmp_path, *lines)
    with open_roster(tmp_path) as connection:
        local = import_rows(connection, lines_of(lines))

    assert report.refused == local.refused
    assert report.refused_count == local.refused_count == 5
    assert not sql.exists()


def test_an_older_file_stays_when_a_new_one_is_refused(tmp_path: Path) -> None:
    _, sql = prepare(tmp_path, line(1))
    before = sql.read_bytes()
    prepare(tmp_path, "nonsense")

    assert sql.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agents.jsonl", "agents.jsonl.d1.sql"]


@pytest.mark.parametrize(
    ("there", "given", "constraint"),
    [
        ([line(1)], line(2, stx_address=address(1)), "UNIQUE constraint failed: agents.stx_address"),
        ([], None, "FOREIGN KEY constraint failed"),
    ],
)
def test_what_conflicts_with_the_database_is_refused_by_it(
    there: list[str], given: str | None, constraint: str, tmp_path: Path
) -> None:
    """Another agent's address, or a claim without an agent; nothing of the file is written."""
    if given is None:
        claims = [{"results": [{"btc_address": "bc1q7", "status": "verified"}], "success": True}]
        _, sql = prepare(tmp_path, json.dumps(claims), name="claims.json")
    else:
        _, sql = prepare(tmp_path, line(5), given)
    with open_roster(tmp_path) as connection:
        import_rows(connection, lines_of(there))
        before = tables(connection)
        with pytest.raises(sqlite3.IntegrityError, match=constraint):
            load(connection, sql)

        assert tables(connection) == before


def test_the_command_prints_what_to_do_next(tmp_path: Path) -> None:
    file, sql = tmp_path / "agents.jsonl", tmp_path / "for d1.sql"
    file.write_text(line(1, claim={"status": "verified"}) + "\n")

    done = CliRunner().invoke(app, ["import", str(file), "--d1-sql", str(sql)])

    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        f"{sql}: 1 agents, 1 claims. Nothing is loaded yet. Next:",
        f"npx wrangler d1 execute tocsin --remote --file '{sql}'",
    ]
    assert stat.S_IMODE(sql.stat().st_mode) == 0o600


def test_a_data_directory_an_empty_file_and_a_bad_name_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "agents.jsonl"
    file.write_text("\n")
    both = CliRunner().invoke(app, ["import", str(file), "--d1-sql", "x.sql", "--data-dir", "data"])

    assert isinstance(both.exception, UsageError)
    with pytest.raises(ImportRefused, match="holds no agents and no claims"):
        write_d1_sql(file, tmp_path / "x.sql", lambda _: None)
    file.write_text(line(1))
    with pytest.raises(UsageError, match="is not a regular file"):
        write_d1_sql(file, tmp_path, lambda _: None)
