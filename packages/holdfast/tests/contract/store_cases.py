"""DB and KV, as an object's code sees them."""

from typing import Any

from contract.contract_do import ContractDO, case, refusal
from holdfast.types import JSON

# All cases of a session on workerd share one database, so each case has its own table.
TABLE = """
CREATE TABLE {} (
  id INTEGER PRIMARY KEY, name TEXT UNIQUE, n INTEGER NOT NULL DEFAULT 0 CHECK (n >= 0), r REAL, b BLOB
)"""


async def _table(self: ContractDO, name: str) -> str:
    await self.env.DB.batch(
        [self.env.DB.prepare(f"DROP TABLE IF EXISTS {name}"), self.env.DB.prepare(TABLE.format(name))]
    )
    return name


@case(
    [
        [
            {"id": 1, "name": "é😀", "n": 2**53 - 1, "r": 0.5, "b": "0001ff"},
            {"id": 2, "name": None, "n": 1, "r": None, "b": None},
        ],
        [1, 2],
    ]
)
async def cells_come_back(self: ContractDO) -> JSON:
    """Text, integers, floats, bytes, NULL, and booleans as 1 and 0."""
    table = await _table(self, "cells")
    insert = self.env.DB.prepare(f"INSERT INTO {table} (name, n, r, b) VALUES (?, ?, ?, ?)")
    first = await insert.bind("é😀", 2**53 - 1, 0.5, b"\0\1\xff").run()
    second = await insert.bind(None, True, None, None).run()
    rows = (await self.env.DB.prepare(f"SELECT * FROM {table} ORDER BY id").all()).results
    for row in rows:
        row["b"] = None if row["b"] is None else row["b"].hex()
    return [rows, [first.meta.last_row_id, second.meta.last_row_id]]


@case([{"name": "a"}, None, [], 1, 0])
async def first_and_all_and_run(self: ContractDO) -> JSON:
    """`first` returns a row or None, `all` returns every row, and `meta` the number of changes."""
    table = await _table(self, "firsts")
    ran = await self.env.DB.prepare(f"INSERT INTO {table} (name) VALUES ('a')").run()
    named = self.env.DB.prepare(f"SELECT name FROM {table} WHERE name = ?")
    nothing = await named.bind("b").all()
    return [
        await named.bind("a").first(),
        await named.bind("b").first(),
        nothing.results,
        ran.meta.changes,
        nothing.meta.changes,
    ]


@case(["ConstraintViolated", "unique", []])
async def a_batch_is_all_or_nothing(self: ContractDO) -> JSON:
    """If one statement fails, the others are undone."""
    table = await _table(self, "batches")
    insert = self.env.DB.prepare(f"INSERT INTO {table} (name) VALUES ('a')")
    try:
        await self.env.DB.batch([insert, insert])
    except Exception as error:  # noqa: BLE001 - the observation
        seen = [type(error).__name__, getattr(error, "kind", None)]
    else:
        seen = ["accepted", None]
    return [*seen, (await self.env.DB.prepare(f"SELECT * FROM {table}").all()).results]


@case([["unique", "check", "not_null", "foreign_key"], "StoreError", "StoreError"])
async def refusals_have_their_class(self: ContractDO) -> JSON:
    """A broken rule of the schema has its kind. A wrong statement is a StoreError."""
    table = await _table(self, "rules")
    db = self.env.DB
    await db.batch(
        [
            db.prepare("DROP TABLE IF EXISTS child"),
            db.prepare(f"CREATE TABLE child (p INTEGER REFERENCES {table} (id))"),
        ]
    )
    await db.prepare(f"INSERT INTO {table} (name) VALUES ('a')").run()
    kinds: list[JSON] = []
    for sql in (
        f"INSERT INTO {table} (name) VALUES ('a')",
        f"INSERT INTO {table} (n) VALUES (-1)",
        f"INSERT INTO {table} (n) VALUES (NULL)",
        "INSERT INTO child (p) VALUES (99)",
    ):
        try:
            await db.prepare(sql).run()
        except Exception as error:  # noqa: BLE001 - the observation
            kinds.append(getattr(error, "kind", repr(error)))
    refusals = [await refusal(db.prepare(sql).all) for sql in ("SELEC 1", "SELECT * FROM no_such_table")]
    await db.prepare("DROP TABLE child").run()
    return [kinds, *[text.partition(":")[0] for text in refusals]]


@case(
    [
        "UsageError: BEGIN is reserved for the platform: use one batch([...]) for an atomic change",
        "ValueRefused: bind: value 1 is of type list; bind text, int, float, bytes, bool or None",
        "ValueRefused: bind: value 2 is inf, which SQLite and D1 would change",
        "UsageError: batch takes statements that this database prepared",
        [],
    ]
)
async def misuse_is_refused_in_the_same_words(self: ContractDO) -> JSON:
    """Transactions are batches, and values must be of SQLite's types."""
    db: Any = self.env.DB
    statement = db.prepare("SELECT ?, ?")
    return [
        await refusal(lambda: db.prepare("BEGIN")),
        await refusal(lambda: statement.bind([1], 2)),
        await refusal(lambda: statement.bind(1, float("inf"))),
        await refusal(lambda: db.batch(["SELECT 1"])),
        await db.batch([]),
    ]


# KV


@case(["é😀", None, "2", None, {"e:a": "2"}])
async def texts_are_kept_under_keys(self: ContractDO) -> JSON:
    """Read, overwrite, delete. Several at once return those that exist."""
    kv = self.env.KV
    await kv.put("e:a", "é😀")
    seen = [await kv.get("e:a"), await kv.get("e:nothing")]
    await kv.put("e:a", "2", expiration_ttl=60)
    seen.append(await kv.get("e:a"))
    await kv.put("e:b", "3")
    await kv.delete("e:b")
    await kv.delete("e:b")
    seen.append(await kv.get("e:b"))
    return [*seen, await kv.get_many(["e:b", "e:a", "e:nothing", "e:a"])]


@case([["l:1", "l:2"], ["l:3", "l:é"], None, []])
async def lists_have_pages(self: ContractDO) -> JSON:
    """Names in byte order. The cursor leads to the next page, and is None on the last."""
    kv = self.env.KV
    for name in ("l:é", "l:3", "l:1", "l:2", "m:1"):
        await kv.put(name, "x")
    first = await kv.list(prefix="l:", limit=2)
    second = await kv.list(prefix="l:", limit=2, cursor=first.cursor)
    return [first.keys, second.keys, second.cursor, (await kv.list(prefix="none:")).keys]


@case(
    [
        "UsageError: KV: '' cannot be a key; use any other text",
        "UsageError: KV.put 'k': expiration_ttl is 59; give whole seconds, 60 to 10000000000",
        "ValueRefused: KV.put 'k': the value is of type int; KV holds text",
        "UsageError: KV.list: limit is 1001; give 1 to 1000",
        "UsageError: KV.get_many takes 100 keys at most, not 101: split the call",
    ]
)
async def misuse_of_kv_is_refused(self: ContractDO) -> JSON:
    """With the same error texts."""
    kv: Any = self.env.KV
    return [
        await refusal(lambda: kv.get("")),
        await refusal(lambda: kv.put("k", "v", expiration_ttl=59)),
        await refusal(lambda: kv.put("k", 1)),
        await refusal(lambda: kv.list(limit=1001)),
        await refusal(lambda: kv.get_many([str(number) for number in range(101)])),
    ]
