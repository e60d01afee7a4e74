"""The schema: totals follow every swap exactly, and its rules refuse what would not count."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ConstraintViolated, StoreError
from holdfast.local.migrations import difference, load, schema_of, split
from holdfast.types import Database
from holdfast_testing.virtual_time import run_virtual
from support.local_store import open_competition
from tocsin.swaps import COMPETITION_MIGRATIONS, trades
from tocsin.swaps import store as totals

SENDERS = ("SP1", "SP2")
TOKENS = ("stx", "A.a::a", "B.b::b")
INSERT = """
INSERT INTO swaps (txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out,
  burn_block_time, block_height, block_hash, tx_index, source, allowlist_version, recorded_at)
VALUES (?, ?, 'C.c', 'swap', ?, ?, ?, ?, ?, 1, '0x', 0, 'cron', 'v', 0)
ON CONFLICT (txid) DO NOTHING RETURNING txid"""


def txid(number: int) -> str:
    return f"0x{number:064x}"


async def add_agents(db: Database) -> None:
    sql = "INSERT INTO agents (btc_address, stx_address) VALUES (?, ?)"
    await db.batch([db.prepare(sql).bind(f"bc1{sender}", sender) for sender in SENDERS])


def test_the_schema_is_the_sum_of_its_migrations() -> None:
    """schema.sql and the migrations give the same schema, line by line."""
    summed = schema_of(s for migration in load(COMPETITION_MIGRATIONS) for s in migration.statements)
    written = schema_of(split((COMPETITION_MIGRATIONS / "schema.sql").read_text(encoding="utf-8")))

    assert difference(written, summed) == []
    assert any(line.startswith("table swaps: ") for line in summed)


amounts = st.one_of(st.integers(1, 100), st.integers(1, 10**40 - 1), st.sampled_from([10**10, 10**20 - 1, 10**39]))
swaps = st.tuples(
    st.integers(0, 5), st.sampled_from(SENDERS), st.permutations(TOKENS), amounts, amounts, st.integers(1, 9)
)
steps = st.lists(st.one_of(swaps, st.integers(0, 5)), max_size=30)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(steps)
def test_totals_equal_the_sums_of_the_swaps(steps: list[tuple[int, str, list[str], int, int, int] | int]) -> None:
    """After any inserts (some known already) and removals, every total is the exact sum; a rebuild agrees."""

    async def check() -> None:
        with TemporaryDirectory() as directory:
            async with open_competition(Path(directory)) as db:
                await add_agents(db)
                kept = await apply(db)
                assert await found(db) == expected(kept)
                assert await totals.drift(db) == {}
                await totals.rebuild(db)
                assert await found(db) == expected(kept)

    async def apply(db: Database) -> dict[int, tuple[str, str, str, int, int, int]]:
        kept: dict[int, tuple[str, str, str, int, int, int]] = {}
        for step in steps:
            if isinstance(step, int):
                await db.prepare("DELETE FROM swaps WHERE txid = ?").bind(txid(step)).run()
                kept.pop(step, None)
                continue
            number, sender, (given_, gotten, _), amount_in, amount_out, burn_time = step
            values = (txid(number), sender, given_, str(amount_in), gotten, str(amount_out), burn_time)
            inserted = (await db.prepare(INSERT).bind(*values).run()).results
            assert bool(inserted) == (number not in kept)
            kept.setdefault(number, (sender, given_, gotten, amount_in, amount_out, burn_time))
        return kept

    run_virtual(check())


def expected(kept: dict[int, tuple[str, str, str, int, int, int]]) -> object:
    pairs: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    senders: dict[str, tuple[int, int, int]] = {}
    tokens: Counter[str] = Counter()
    for sender, given_, gotten, amount_in, amount_out, burn_time in kept.values():
        count, sum_in, sum_out = pairs.get((sender, given_, gotten), (0, 0, 0))
        pairs[sender, given_, gotten] = (count + 1, sum_in + amount_in, sum_out + amount_out)
        count, first, last = senders.get(sender, (0, burn_time, burn_time))
        senders[sender] = (count + 1, min(first, burn_time), max(last, burn_time))
        tokens.update((given_, gotten))
    return pairs, senders, dict(tokens)


async def found(db: Database) -> object:
    rows = (await db.prepare("SELECT * FROM pair_totals").all()).results
    pairs = {
        (row["sender"], row["token_in"], row["token_out"]): (
            row["trades"],
            totals.amount(row, "in"),
            totals.amount(row, "out"),
        )
        for row in rows
    }
    rows = (await db.prepare("SELECT * FROM sender_totals").all()).results
    senders = {row["sender"]: (row["trades"], row["first_trade_at"], row["last_trade_at"]) for row in rows}
    rows = (await db.prepare("SELECT * FROM token_totals").all()).results
    return pairs, senders, {row["token"]: row["trades"] for row in rows}


async def test_drift_is_noticed_and_repaired(tmp_path: Path) -> None:
    """Totals changed by hand are reported by table, and a rebuild corrects them."""
    async with open_competition(tmp_path) as db:
        await add_agents(db)
        await db.prepare(INSERT).bind(txid(1), "SP1", "stx", "5", "A.a::a", "7", 9).run()
        await db.batch([db.prepare("UPDATE pair_totals SET in_0 = 6"), db.prepare("DELETE FROM token_totals")])
        drifted = await totals.drift(db)
        await totals.rebuild(db)

        assert drifted == {"pair_totals": 2, "token_totals": 2}
        assert await totals.drift(db) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((txid(1).upper(), "SP1", "stx", "5", "A", "7", 9), "check"),
        ((txid(0xA).upper().replace("X", "x"), "SP1", "stx", "5", "A", "7", 9), "check"),
        ((txid(1)[:-1], "SP1", "stx", "5", "A", "7", 9), "check"),
        ((txid(1), "SP3", "stx", "5", "A", "7", 9), "foreign_key"),
        ((txid(1), "SP1", "stx", "5", "stx", "7", 9), "check"),
        ((txid(1), "SP1", "stx", "0", "A", "7", 9), "check"),
        ((txid(1), "SP1", "stx", "-5", "A", "7", 9), "check"),
        ((txid(1), "SP1", "stx", "5", "A", "1e3", 9), "check"),
        ((txid(1), "SP1", "stx", "1" * 41, "A", "7", 9), "check"),
        ((txid(1), "SP1", "stx", None, "A", "7", 9), "not_null"),
    ],
)
async def test_rows_that_cannot_be_right_are_refused(
    tmp_path: Path, values: tuple[str | int | None, ...], kind: str
) -> None:
    """Ids in another spelling, wrong amounts and unknown senders are refused; nothing is counted."""
    async with open_competition(tmp_path) as db:
        await add_agents(db)
        with pytest.raises(ConstraintViolated) as refused:
            await db.prepare(INSERT).bind(*values).run()

        assert refused.value.kind == kind
        assert (await db.prepare("SELECT count(*) AS n FROM sender_totals").first()) == {"n": 0}


async def test_a_swap_is_replaced_never_changed(tmp_path: Path) -> None:
    """An UPDATE, which the totals would not follow, is refused."""
    async with open_competition(tmp_path) as db:
        await add_agents(db)
        await db.prepare(INSERT).bind(txid(1), "SP1", "stx", "5", "A.a::a", "7", 9).run()
        with pytest.raises(StoreError, match="replaced"):
            await db.prepare("UPDATE swaps SET amount_in = '6'").run()


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        ("SELECT * FROM swaps WHERE sender = ? ORDER BY burn_block_time DESC, txid DESC LIMIT 50", "swaps_by_sender"),
        ("SELECT txid FROM swaps WHERE contract_id = ? AND block_height >= ?", "swaps_by_contract"),
        ("SELECT min(burn_block_time) FROM swaps WHERE sender = ?", "swaps_by_sender"),
        ("SELECT * FROM candidates WHERE rank = ? AND due_at <= ? ORDER BY due_at, txid LIMIT 9", "candidates_by_rank"),
        ("SELECT * FROM refusals WHERE code = ?", "refusals_by_code"),
    ],
)
def test_queries_use_their_index(sql: str, index: str) -> None:
    """No query of the hot paths reads a whole table, or sorts one."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in load(COMPETITION_MIGRATIONS):
            for statement in migration.statements:
                connection.execute(statement)
        count = sql.count("?")
        plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("x",) * count))

    assert f"INDEX {index}" in plan
    assert "SCAN" not in plan
    assert "TEMP B-TREE" not in plan


def test_recent_refusals_are_counted_without_the_older_ones() -> None:
    """However many there are, only the recent ones are read, and of them only the index."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in load(COMPETITION_MIGRATIONS):
            for statement in migration.statements:
                connection.execute(statement)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {trades._REFUSED_SINCE}", (1,))]

    assert plan[0] == "SEARCH refusals USING COVERING INDEX refusals_by_time (refused_at>?)"
