"""Text from outside at its limits: exports, cursors, statements for D1."""

import json
from typing import Any

import pytest

from tocsin.competition import d1_sql, page_token, sql_export
from tocsin.competition.agent_rows import ImportRow, RowError
from tocsin.competition.sql_export import read_export

SCHEMA = "CREATE TABLE agents (btc_address TEXT, stx_address TEXT, display_name TEXT);\n"


def rows(script: str, size: int = 0) -> list[list[Any]]:
    """The values of all rows; an error is a row of its own."""
    pieces = [script] if not size else [script[at : at + size] for at in range(0, len(script), size)]
    return [
        list(row.fields.values()) if isinstance(row, ImportRow) else [row.line, row.reason]
        for row in read_export(pieces)
    ]


# Exports


def nested(depth: int) -> str:
    return "unistr(" * depth + "'x'" + ")" * depth


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (nested(8), "x"),
        ("char(1114111)", "\U0010ffff"),
        ("char(1)", "\x01"),
        ("unistr('\\0041\\+000042\\U00000043\\u0044')", "ABCD"),
        ("replace('a-b-c', '-', '+')", "a+b+c"),
        ("9" * 40, int("9" * 40)),
        ("9" * 41, 1e41),
        ("1.5e3", 1500.0),
        (".5", 0.5),
        ("-7", -7),
        ("x'0aFF'", b"\x0a\xff"),
        ("x'0aF'", b""),
        ("NULL", None),
    ],
)
def test_a_value_of_an_export(value: str, read: Any) -> None:
    """Literals, and the functions with which line ends are written."""
    assert rows(f"{SCHEMA}INSERT INTO agents VALUES ({value}, 2, 3);") == [[read, 2, 3]]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (nested(9), "expected a value, found 'UNISTR'"),
        ("char(0)", "the value char(…) is not understood"),
        ("char(1114112)", "the value char(…) is not understood"),
        ("char(1, 2)", "the value char(…) is not understood"),
        ("replace('a', '', 'b')", "the value replace(…) is not understood"),
        ("replace('a', 'b', 'c', 'd')", "expected ), found 'd'"),
        ("f" * 60 + "(1)", f"the value {'f' * 40}(…) is not understood"),
        ("w" * 60, f"expected a value, found {('W' * 40)!r}"),
        ("1 " + "z" * 60, f"expected ), found {('Z' * 40)!r}"),
    ],
)
def test_a_value_that_is_none(value: str, reason: str) -> None:
    """One error with its line, and forty characters of what was found."""
    assert rows(f"{SCHEMA}INSERT INTO agents VALUES ({value}, 2, 3);") == [[2, reason]]


def test_a_function_makes_two_million_characters_at_most() -> None:
    """What was there and what is put in; one more is refused."""
    for length, is_read in ((1_999_998, True), (1_999_999, False)):
        [row] = rows(
            f"{SCHEMA}INSERT INTO agents VALUES (replace('{'a' * length}b', 'b', 'c'), 2, 3);", 100_000
        )
        assert (len(row) == 3) is is_read


def test_a_text_may_be_four_million_characters_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is waited for; here it is a hundred."""
    assert (sql_export.TOKEN_MAX, sql_export.TEXT_MAX) == (4_000_000, 2_000_000)
    monkeypatch.setattr(sql_export, "TOKEN_MAX", 100)
    script = f"{SCHEMA}INSERT INTO agents VALUES ('{'x' * 350}', 2, 3);"

    assert rows(script, 100)[0][0] == 2
    assert rows(script, 1_000) == [["x" * 350, 2, 3]]
    at_bound = f"{SCHEMA}INSERT INTO agents VALUES (\n"
    pieces = [at_bound, "'" + "x" * 99, "y', 2, 3);"]
    assert [row.fields["btc_address"] for row in read_export(pieces) if isinstance(row, ImportRow)] == [
        "x" * 99 + "y"
    ]
    [refused] = read_export([at_bound, "'" + "x" * 100, "y', 2, 3);"])
    assert isinstance(refused, RowError)


def test_a_table_may_have_a_hundred_columns() -> None:
    """In a schema, in the names of an INSERT and in its values; the 101st is refused."""
    names = ["btc_address", *(f"c{n}" for n in range(100))]
    for count, is_read in ((100, True), (101, False)):
        columns, values = ", ".join(names[:count]), ", ".join(["1"] * count)
        by_schema = rows(f"CREATE TABLE agents ({columns});\nINSERT INTO agents VALUES ({values});")
        by_names = rows(f"INSERT INTO agents ({columns}) VALUES ({values});")
        assert (by_schema == [[1]], by_names == [[1]]) == (is_read, is_read)


@pytest.mark.parametrize(
    "before",
    [
        "CREATE INDEX i ON agents (btc_address)",
        "CREATE UNIQUE INDEX i ON t (a) WHERE a IN (1, 2)",
        "CREATE TABLE other (a, b); INSERT INTO other VALUES ('INSERT INTO agents', f(1))",
        "INSERT INTO other SELECT 1, 2",
        "CREATE TEMP TRIGGER t AFTER INSERT ON x BEGIN SELECT 1; SELECT CASE WHEN 1 THEN 2 END; END",
        "PRAGMA foreign_keys = OFF; BEGIN TRANSACTION",
        "CREATE TABLE claims (a TEXT DEFAULT (1 + (2)), PRIMARY KEY (a), UNIQUE (a)) WITHOUT ROWID",
        ";;;",
    ],
)
def test_what_comes_before_a_row_does_not_hide_it(before: str) -> None:
    """Other statements are skipped to their end, and no further."""
    script = f"{SCHEMA}{before};\nINSERT INTO agents VALUES (1, 2, 3);"

    assert rows(script) == [[1, 2, 3]]
    assert rows(script, 1) == [[1, 2, 3]]


def test_columns_of_constraints_are_no_columns() -> None:
    """Nor is what stands within the parentheses of a type or a check."""
    schema = (
        "CREATE TABLE agents (btc_address VARCHAR(10, 2) CHECK (length(btc_address, 1) > 0),"
        ' "stx_address" TEXT, CONSTRAINT c CHECK (1), FOREIGN KEY (a, b) REFERENCES t (a, b));'
    )

    assert rows(f"{schema} INSERT INTO agents VALUES ('a', 'b'), ('c', 'd')") == [["a", "b"], ["c", "d"]]


# Cursors


@pytest.mark.parametrize("value", [[], ["pnl:desc", 50], {"t": 1, "x": "0x"}, "ü?>~", None, 7])
def test_a_cursor_comes_back_as_it_went(value: Any) -> None:
    """In letters that an address may have."""
    text = page_token.write(value)

    assert page_token.read(text) == value
    assert "=" not in text
    assert text.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize("text", ["", "!", "W10=x", "W1!0", "\u00fc", "W1 0", "x" * 5_000, "W" * 401])
def test_anything_else_is_no_cursor(text: str) -> None:
    """It is not an error: callers may send anything."""
    assert page_token.read(text) is None


def test_a_long_cursor_is_read_up_to_its_bound() -> None:
    """Four hundred characters."""
    fits, longer = page_token.write("x" * 298), page_token.write("x" * 299)

    assert (len(fits), page_token.read(fits)) == (400, "x" * 298)
    assert (len(longer) > 400, page_token.read(longer)) == (True, None)


# Statements for D1


def test_a_statement_for_d1_is_within_its_limit() -> None:
    """Several rows up to 25,000 bytes, a long row alone, all of them, in order."""
    room = 25_000 - len(d1_sql.statement_of("agents", ()))
    half = [d1_sql.row_of({"btc_address": "a" * n}) for n in (5, room // 2 - 19, 7)]
    long = d1_sql.row_of({"btc_address": "ü" * 20_000})
    made = list(d1_sql.statements("agents", [*half, long, half[0]]))

    assert [statement.count('"btc_address":') for statement in made] == [3, 1, 1]
    assert all(len(statement.encode()) <= 25_000 for statement in (made[0], made[2]))
    assert len(made[1].encode()) <= 99_000
    assert list(d1_sql.statements("agents", [])) == []


def test_a_statement_is_filled_to_the_last_byte() -> None:
    """With the comma of each row; one byte more begins the next."""
    room = 25_000 - len(d1_sql.statement_of("agents", ()))
    row = "x" * 99
    fits, rest = divmod(room, 100)
    counts = [statement.count(row) for statement in d1_sql.statements("agents", [row] * (fits + 1))]
    exact = ["x" * 99] * (fits - 1) + ["y" * (99 + rest)]

    assert counts == [fits, 1]
    assert len(list(d1_sql.statements("agents", exact))) == 1
    assert len(list(d1_sql.statements("agents", [*exact[:-1], "y" * (100 + rest)]))) == 2


def test_a_row_for_d1_has_what_a_statement_leaves() -> None:
    """99,000 bytes less the statement around it."""
    assert d1_sql.row_max("agents") == 99_000 - len(d1_sql.statement_of("agents", ()))


def test_nothing_in_a_row_ends_a_statement() -> None:
    """Quotes, semicolons and what wrangler takes for a transaction are written as escapes."""
    fields: dict[str, Any] = {"display_name": "it's; BEGIN TRANSACTION"}
    text = d1_sql.row_of(fields)

    assert not {"'", ";"} & set(text)
    assert "BEGIN TRANSACTION" not in text
    assert json.loads(text) == fields
