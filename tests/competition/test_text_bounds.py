"""Text from outside at its limits: exports, JSON in pieces, cursors, statements for D1."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.virtual_time import run_virtual
from tocsin.competition import d1_sql, page_token, sql_export
from tocsin.competition.agent_rows import ImportRow, RowError
from tocsin.competition.json_stream import JsonStream, decoded
from tocsin.competition.sql_export import read_export
from tocsin.errors import MalformedBody

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


# JSON in pieces


async def pieces_of(raw: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(raw), size):
        yield raw[at : at + size]
        yield b""


async def walked(stream: JsonStream) -> Any:
    """The whole value, walked through step by step."""
    kind = await stream.kind()
    if kind == "{":
        return {name: await walked(stream) async for name in stream.members()}
    if kind == "[":
        return [await walked(stream) async for _ in stream.items()]
    raw = await stream.take(10_000)
    assert raw is not None
    return decoded(raw)


async def whole(raw: bytes, size: int) -> Any:
    stream = JsonStream(pieces_of(raw, size))
    value = await walked(stream)
    await stream.finish()
    return value


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a"\\ü{}[],:', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\{', max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values, st.integers(1, 7), st.sampled_from([None, 1]))
def test_json_in_pieces_is_what_it_is_in_one(value: Any, size: int, indent: int | None) -> None:
    """Walked through, taken as a whole, and skipped."""
    raw = json.dumps(value, indent=indent, ensure_ascii=False).encode()

    async def taken(size_max: int) -> Any:
        stream = JsonStream(pieces_of(raw + b" ", size))
        found = await stream.take(size_max)
        await stream.finish()
        return found

    assert run_virtual(whole(raw, size)) == value
    assert run_virtual(taken(len(raw))) == raw
    assert run_virtual(taken(len(raw) - 1)) is None


async def test_a_value_that_is_passed_over_hides_nothing_after_it() -> None:
    """Large or small; the members after it are read, and memory holds no more than a piece."""
    large = json.dumps({"a": ["}" * 5_000, {"b": 1}] * 20})
    raw = f'{{"first": {large}, "second": 2, "third": "3"}}'.encode()
    stream, found, most = JsonStream(pieces_of(raw, 100)), dict[str, Any](), 0
    await stream.kind()
    async for name in stream.members():
        if name == "first":
            await stream.skip()
        else:
            taken = await stream.take(10)
            assert taken is not None
            found[name] = decoded(taken)
        most = max(most, len(stream._buffer))

    assert found == {"second": 2, "third": "3"}
    assert most <= 300


async def test_a_number_is_taken_without_what_follows_it() -> None:
    """However much that is: memory holds no more than a piece of it."""
    raw = b"[17, " + b"1, " * 5_000 + b"2]"
    stream = JsonStream(pieces_of(raw, 100))
    await stream.kind()
    await anext(stream.items())

    assert await stream.take(10) == b"17"
    assert len(stream._buffer) <= 200


async def test_the_elements_of_a_list_are_numbered_from_nought() -> None:
    """Empty ones have none."""
    stream = JsonStream(pieces_of(b"[7, [], 8]", 3))
    numbers = []
    await stream.kind()
    async for number in stream.items():
        numbers.append(number)
        await stream.skip()

    assert numbers == [0, 1, 2]
    assert await whole(b"[]", 1) == []
    assert await whole(b" { } ", 1) == {}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[1",
        b"[1,",
        b"[1 2]",
        b"[,1]",
        b"[1,]",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,}',
        b"{1: 2}",
        b'{"a" 1}',
        b'{"a": 1]',
        b'"abc',
        b'"abc\\',
        b"[1]]",
        b"1 2",
        b"NaN",
        b"nul",
        b'"\xff"',
    ],
)
@pytest.mark.parametrize("size", [1, 100])
async def test_what_is_not_json_is_refused(raw: bytes, size: int) -> None:
    """Wherever it is cut off."""
    with pytest.raises(MalformedBody, match="not JSON"):
        await whole(raw, size)


@pytest.mark.parametrize(("length", "is_read"), [(998, True), (999, False)])
async def test_a_name_has_a_thousand_bytes_at_most(length: int, *, is_read: bool) -> None:
    """With its quotes."""
    raw = b'{"' + b"n" * length + b'": 1}'
    if is_read:
        assert await whole(raw, 50) == {"n" * length: 1}
    else:
        with pytest.raises(MalformedBody, match="a member of an object needs a name"):
            await whole(raw, 50)


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
