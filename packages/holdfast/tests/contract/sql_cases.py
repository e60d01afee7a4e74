"""`storage.sql` and `storage.kv`, as an object's code sees them."""

import math
from functools import partial
from typing import Any

from contract.contract_do import ContractDO, case, refusal


@case([[{"id": 1, "name": "é"}, {"id": 2, "name": None}], "é", {"id": 2, "name": None}, [[1, "é"], [2, None]]])
async def rows_have_keys_and_attributes(self: ContractDO) -> Any:
    """They can be returned to the caller, too."""
    self.sql.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
    self.sql.exec("INSERT INTO t VALUES (?, ?), (?, ?)", 1, "é", 2, None)
    rows = self.sql.exec("SELECT * FROM t ORDER BY id").all()
    one = self.sql.exec("SELECT * FROM t WHERE id = ?", 2).one()
    return [rows, rows[0].name, one, list(self.sql.exec("SELECT * FROM t ORDER BY id").raw())]


@case([["n"], [[1]], [{"n": 2}], [], [], ["a", "a"], {"a": 2}, [[1, 2]]])
async def a_cursor_returns_each_row_once(self: ContractDO) -> Any:
    """In whatever way it is asked for. A row keeps the last of two columns with one name; raw() has both."""
    cursor = self.sql.exec("SELECT 1 AS n UNION SELECT 2 ORDER BY n")
    seen: list[Any] = [cursor.column_names, [next(cursor.raw())], cursor.all(), cursor.all(), list(cursor)]
    twice = "SELECT 1 AS a, 2 AS a"
    return [*seen, self.sql.exec(twice).column_names, self.sql.exec(twice).one(), list(self.sql.exec(twice).raw())]


@case(["no results", "multiple results", [[], 0, 2, []]])
async def one_row_is_neither_none_nor_two(self: ContractDO) -> Any:
    """And a statement without rows has no columns."""
    none = await refusal(lambda: self.sql.exec("SELECT 1 WHERE 0").one())
    two = await refusal(lambda: self.sql.exec("SELECT 1 UNION SELECT 2").one())
    self.sql.exec("CREATE TABLE t (a)")
    inserted = self.sql.exec("INSERT INTO t VALUES (1), (2)")
    counts: list[Any] = [inserted.column_names, inserted.rows_read, inserted.rows_written, inserted.all()]
    return [none[-len("no results.") : -1], two[-len("multiple results.") : -1], counts]


@case(["real", 1.5, "3.0", 3, "int", 2.5, "blob", "text", "null", 1, "int"])
async def numbers_are_those_of_javascript(self: ContractDO) -> Any:
    """A bound 3 is REAL until a column of INTEGER makes it one; a whole number is read as an int."""
    row = self.sql.exec(
        "SELECT typeof(?1) a, ?1 / 2 b, CAST(?1 AS TEXT) c, ?1 d, ?2 e, typeof(?3) f, typeof(?4) g, typeof(?5) h, ?6 i",
        *(3, 2.5, b"\x00\xff", "x", None, True),
    ).one()
    return [row.a, row.b, row.c, row.d, type(row.d).__name__, *list(row.values())[4:], type(row.i).__name__]


@case([True, True, [9007199254740991, -9007199254740991], "9007199254740993"])
async def blobs_and_the_largest_numbers_come_back_exactly(self: ContractDO) -> Any:
    """A larger integer is exact as text."""
    blob = bytes(range(256))
    back = self.sql.exec("SELECT ? AS b, x'' AS e", blob).one()
    largest = self.sql.exec("SELECT ? AS a, ? AS b", 2**53 - 1, -(2**53) + 1).one()
    text = self.sql.exec("SELECT CAST(9007199254740993 AS TEXT) AS n").one()
    return [back.b == blob, back.e == b"", [largest.a, largest.b], text.n]


@case(["ValueRefused"] * 9)
async def what_javascript_would_round_is_refused(self: ContractDO) -> Any:
    """Bound or read: integers over 2**53, and what is not finite."""
    values: list[Any] = [2**53, -(2**53), 2**63, 1e300, math.nan, math.inf, [1]]
    bound = [await refusal(partial(self.sql.exec, "SELECT ?", value)) for value in values]
    read = [
        await refusal(partial(self.sql.exec, f"SELECT {number} AS n"))
        for number in ("9007199254740993", "-1152921504606846976")
    ]
    return [text.partition(":")[0] for text in (*bound, *read)]


RESERVED = [
    "BEGIN", "commit", "END", "ROLLBACK", "/* a */ SAVEPOINT a", "RELEASE a", "ATTACH 'x' AS y", "DETACH y",
    "VACUUM", "VACUUM INTO 'x'", "PRAGMA journal_mode", "PRAGMA user_version = 3", "CREATE TABLE _cf_x (a)",
    "CREATE TABLE _CF_X (a)", "CREATE TEMP TABLE x (a)", "", " -- nothing", "SELECT ?", "SELECT 1; BEGIN",
]  # fmt: skip


@case(["UsageError"] * len(RESERVED))
async def what_the_platform_controls_is_refused(self: ContractDO) -> Any:
    """Transactions, files, settings, its names; and calls without a statement or without a value."""
    return [(await refusal(partial(self.sql.exec, sql))).partition(":")[0] for sql in RESERVED]


@case(["ConstraintViolated", "ConstraintViolated", "StoreError", "StoreError", [[1, 1, None]], [1]])
async def a_refused_statement_changes_nothing(self: ContractDO) -> Any:
    """Those before it did, even in the same call."""
    self.sql.exec("CREATE TABLE p (id INTEGER PRIMARY KEY, n CHECK (n > 0), p REFERENCES p)")
    self.sql.exec("INSERT INTO p VALUES (1, 1, NULL)")
    bad = [
        "INSERT INTO p VALUES (2, 2, NULL), (1, 1, NULL)", "INSERT INTO p VALUES (3, 1, 99)", "SELEC 1",
        "CREATE TABLE q (a); INSERT INTO nope VALUES (1)",
    ]  # fmt: skip
    errors = [(await refusal(partial(self.sql.exec, sql))).partition(":")[0] for sql in bad]
    self.sql.exec("INSERT INTO q VALUES (1)")
    return [*errors, list(self.sql.exec("SELECT * FROM p").raw()), next(self.sql.exec("SELECT count(*) FROM q").raw())]


@case([[1, 1, 3], [1, 1, 3], [2, 1, 4]])
async def a_transaction_holds_rows_entries_and_the_alarm(self: ContractDO) -> Any:
    """What raised is undone together, what returned is kept; inner ones alike."""
    self.sql.exec("CREATE TABLE t (a)")
    at = self.env.clock.now() + 10**9

    def add(offset: int, *, fail: bool) -> None:
        self.sql.exec("INSERT INTO t VALUES (1)")
        self.storage.kv.put("k", offset)
        self.storage.set_alarm(at + offset)
        if fail:
            raise ValueError

    async def seen() -> list[Any]:
        alarm = await self.storage.get_alarm()
        count = self.sql.exec("SELECT count(*) AS n FROM t").one().n
        return [count, self.storage.kv.get("k") - 2, -1 if alarm is None else alarm - at]

    add(3, fail=False)
    before = await seen()
    await refusal(lambda: self.storage.transaction_sync(lambda: add(9, fail=True)))
    undone = await seen()

    async def outer(_transaction: Any) -> None:
        await refusal(lambda: self.storage.transaction_sync(lambda: add(9, fail=True)))
        self.storage.transaction_sync(lambda: add(3, fail=False))
        await self.storage.set_alarm(at + 4)

    await self.storage.transaction(outer)
    after = await seen()
    await self.storage.delete_alarm()
    return [before, undone, after]


@case([1, 1])
async def a_rolled_back_transaction_undoes_its_rows(self: ContractDO) -> Any:
    """By rollback(), or by an exception after a wait."""
    self.sql.exec("CREATE TABLE t (a)")
    self.sql.exec("INSERT INTO t VALUES (1)")

    async def rolled_back(transaction: Any) -> None:
        self.sql.exec("INSERT INTO t VALUES (2)")
        transaction.rollback()

    async def failed(_transaction: Any) -> None:
        self.sql.exec("DROP TABLE t")
        await self.env.clock.sleep(0.001)
        raise ValueError

    await self.storage.transaction(rolled_back)
    first = self.sql.exec("SELECT count(*) AS n FROM t").one().n
    await refusal(lambda: self.storage.transaction(failed))
    return [first, self.sql.exec("SELECT count(*) AS n FROM t").one().n]


@case([[["a fine day"]], [["a fine day"]], []])
async def tables_for_full_text_search(self: ContractDO) -> Any:
    """FTS5, which keeps its own tables and can be rolled back."""
    search = "SELECT body FROM f('fine')"
    self.sql.exec("CREATE VIRTUAL TABLE f USING fts5 (body)")
    self.sql.exec("INSERT INTO f VALUES ('a fine day'), ('a grey one')")
    found = list(self.sql.exec(search).raw())

    async def failed(_transaction: Any) -> None:
        self.sql.exec("DELETE FROM f")
        raise ValueError

    await refusal(lambda: self.storage.transaction(failed))
    kept = list(self.sql.exec(search).raw())
    self.sql.exec("DELETE FROM f WHERE f MATCH 'fine'")
    return [found, kept, list(self.sql.exec(search).raw())]


@case([True, [], None, [{"a": 2}]])
async def delete_all_removes_the_tables(self: ContractDO) -> Any:
    """And new ones may be made in the same turn."""
    self.sql.exec("CREATE TABLE t (a)")
    self.sql.exec("INSERT INTO t VALUES (1)")
    self.storage.kv.put("k", 1)
    had_pages = self.sql.database_size > 0
    await self.storage.delete_all()
    tables = list(self.sql.exec("SELECT name FROM sqlite_master WHERE name NOT LIKE '_cf_%'").raw())
    self.sql.exec("CREATE TABLE t (a)")
    self.sql.exec("INSERT INTO t VALUES (2)")
    return [had_pages, tables, self.storage.kv.get("k"), self.sql.exec("SELECT * FROM t").all()]


@case([None, {"a": 1}, {"a": {"a": 1}, "b": 2}, {"b": 2}, ["b", "a"], {"a": 1}, True, False, "ValueRefused"])
async def entries_without_awaiting(self: ContractDO) -> Any:
    """`storage.kv` and the awaited calls have the same entries."""
    kv = self.storage.kv
    missing = kv.get("a")
    kv.put("a", {"a": 1})
    kv.put("b", 2)
    seen: list[Any] = [
        missing,
        await self.storage.get("a"),
        kv.list(),
        kv.list(prefix="b"),
        list(kv.list(reverse=True)),
    ]
    seen += [kv.get("a"), kv.delete("a"), kv.delete("a")]
    put: Any = kv.put
    return [*seen, (await refusal(lambda: put({"a": 1}, 2))).partition(":")[0]]
