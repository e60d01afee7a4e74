"""The tables: totals follow every swap exactly, what would not count is refused, and the queue is bounded."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ConstraintViolated, StoreError
from holdfast.testing.virtual_time import run_virtual
from holdfast.types import Database
from support.competition import World, feed, open_world, sweep, trading
from support.competition_site import competition_site, push_2
from support.local_store import open_competition, query_plan
from tocsin.errors import RunStopped
from tocsin.swaps import store, trades
from tocsin.swaps.store import Candidate
from tocsin.swaps.submit import RECEIVE, VERIFY_QUEUED, competition_jobs
from tocsin.upstream.budget import Quota

SENDERS = ("SP1", "SP2")
SIDES = ("in", "out")
TOKENS = ("stx", "A.a::a", "B.b::b")
INSERT = """
INSERT INTO swaps (txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out,
  burn_block_time, block_height, block_hash, tx_index, source, allowlist_version, recorded_at)
VALUES (?, ?, 'C.c', 'swap', ?, ?, ?, ?, ?, 1, '0x', 0, 'cron', 'v', 0)
ON CONFLICT (txid) DO NOTHING RETURNING txid"""
HOUR_S = 3_600
_NUMBERS = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {})"
_MANY = f"""
INSERT INTO swaps (txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out,
  burn_block_time, block_height, block_hash, tx_index, source, allowlist_version, recorded_at)
{_NUMBERS.format(25_000)}
SELECT '0x' || printf('%064x', n), ?1, 'SP.gone', 'swap', 'a', '1', 'b', '1', 1, ?2, '0x', n, 'cron', 'v', 0 FROM n"""
_REFUSED = f"""
INSERT INTO refusals (txid, code, reason, sender, burn_block_time, block_height, block_hash, source,
  allowlist_version, refused_at)
{_NUMBERS.format(40_000)}
SELECT '0x' || printf('%064x', n), 'before_comp_start', 'early', ?1, ?2, 1, '0x', 'cron', 'v', 0 FROM n"""


def txid(number: int) -> str:
    return f"0x{number:064x}"


@asynccontextmanager
async def two_senders(directory: Path) -> AsyncIterator[Database]:
    sql = "INSERT INTO agents (btc_address, stx_address) VALUES (?, ?)"
    async with open_competition(directory) as db:
        await db.batch([db.prepare(sql).bind(f"bc1{sender}", sender) for sender in SENDERS])
        yield db


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
            async with two_senders(Path(directory)) as db:
                kept = await apply(db)
                assert await found(db) == expected(kept)
                assert await store.drift(db) == {}
                await store.rebuild(db)
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
            *(store.amount(row, s) for s in ("in", "out")),
        )
        for row in rows
    }
    rows = (await db.prepare("SELECT * FROM sender_totals").all()).results
    senders = {row["sender"]: (row["trades"], row["first_trade_at"], row["last_trade_at"]) for row in rows}
    rows = (await db.prepare("SELECT * FROM token_totals").all()).results
    return pairs, senders, {row["token"]: row["trades"] for row in rows}


async def test_drift_is_noticed_and_repaired(tmp_path: Path) -> None:
    """Totals changed by hand are reported by table, and a rebuild corrects them."""
    async with two_senders(tmp_path) as db:
        await db.prepare(INSERT).bind(txid(1), "SP1", "stx", "5", "A.a::a", "7", 9).run()
        await db.batch([db.prepare("UPDATE pair_totals SET in_0 = 6"), db.prepare("DELETE FROM token_totals")])
        drifted = await store.drift(db)
        await store.rebuild(db)

        assert drifted == {"pair_totals": 2, "token_totals": 2}
        assert await store.drift(db) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        *[
            ((wrong, "SP1", "stx", "5", "A", "7", 9), "check")
            for wrong in (txid(1).upper(), txid(0xA).upper().replace("X", "x"), txid(1)[:-1])
        ],
        ((txid(1), "SP3", "stx", "5", "A", "7", 9), "foreign_key"),
        ((txid(1), "SP1", "stx", "5", "stx", "7", 9), "check"),
        *[((txid(1), "SP1", "stx", wrong, "A", "7", 9), "check") for wrong in ("0", "-5", "1e3", "1" * 41)],
        ((txid(1), "SP1", "stx", "5", "A", "1e3", 9), "check"),
        ((txid(1), "SP1", "stx", None, "A", "7", 9), "not_null"),
    ],
)
async def test_rows_that_cannot_be_right_are_refused(
    tmp_path: Path, values: tuple[str | int | None, ...], kind: str
) -> None:
    """Ids in another spelling, wrong amounts and unknown senders are refused; nothing is counted."""
    async with two_senders(tmp_path) as db:
        with pytest.raises(ConstraintViolated) as refused:
            await db.prepare(INSERT).bind(*values).run()

        assert refused.value.kind == kind
        assert (await db.prepare("SELECT count(*) AS n FROM sender_totals").first()) == {"n": 0}


async def test_a_swap_is_replaced_never_changed(tmp_path: Path) -> None:
    """An UPDATE, which the totals would not follow, is refused."""
    async with two_senders(tmp_path) as db:
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
    plan = " ".join(query_plan(sql, *["x"] * sql.count("?")))

    assert f"INDEX {index}" in plan
    assert "SCAN" not in plan
    assert "TEMP B-TREE" not in plan


def test_recent_refusals_are_counted_without_the_older_ones() -> None:
    """However many there are, only the recent ones are read, and of them only the index."""
    assert (
        query_plan(trades.SQL["refused_since"], 1)[0]
        == "SEARCH refusals USING COVERING INDEX refusals_by_time (refused_at>?)"
    )


# The queue


def invented(number: int, count: int) -> dict[str, Any]:
    """Return a push, as the object gets it, of ids that no chain has."""
    nothing = {"sender": None, "contract": None, "function": None}
    txids = (f"0xdead{number + each:060x}" for each in range(count))
    return {"applied": [{"txid": txid, **nothing} for txid in txids], "rolledBack": [], "withoutId": 0}


async def pushed(world: World, number: int, count: int) -> dict[str, Any]:
    jobs = competition_jobs(world.rules)
    answer = await jobs[RECEIVE](world.request(), invented(number, count))
    assert isinstance(answer, dict)
    return answer


async def candidates(world: World) -> list[dict[str, Any]]:
    return await world.all("SELECT txid, rank, attempts, added_at, due_at FROM candidates ORDER BY txid")


@pytest.mark.slow
async def test_a_reorg_may_withdraw_more_swaps_than_a_value_can_hold(tmp_path: Path) -> None:
    """25,000 recorded swaps that the network's list no longer shows are queued together."""
    async with trading(tmp_path) as (world, chain):
        for _ in range(2):
            world.trade(chain.wallets[0])
            await feed(world)
        await world.db.prepare(_MANY).bind(chain.wallets[0].address, chain.tip_height + 1).run()
        chain.mine()
        chain.mine(chain.swap(chain.wallets[0]))
        with pytest.raises(RunStopped):
            await feed(world, world.run(stop_after=3))  # before it verifies all of them
        [queued] = await world.all("SELECT count(*) AS n FROM candidates")

        assert queued["n"] >= 25_000


@pytest.mark.slow
async def test_refusals_of_any_number_are_opened_again(tmp_path: Path) -> None:
    """40,000 trades were refused because they came before the start, which is then set to an earlier time."""
    async with open_world(tmp_path) as world:
        await sweep(world)
        earlier, sender = world.rules.start_s - 1, world.simulator.chain.wallets[0].address
        await world.db.prepare(_REFUSED).bind(sender, earlier).run()
        rules = replace(world.rules, start_s=earlier)
        with pytest.raises(RunStopped):
            await sweep(world, world.run(stop_after=3), rules)  # before it verifies all of them
        [opened] = world.log.named("refusals.reopened")
        [refused] = await world.all("SELECT count(*) AS n FROM refusals")

        assert (opened["count"], refused["n"]) == (40_000, 0)


@pytest.mark.slow
async def test_a_flood_of_pushes_neither_fills_the_database_nor_delays_a_swap(tmp_path: Path) -> None:
    """Of 200,000 invented ids 10,000 are queued, the rest are refused, and a sweep asks for one group."""
    async with open_world(tmp_path) as world:
        await sweep(world)  # the lists are read once
        answers = [await pushed(world, number, 20_000) for number in range(0, 200_000, 20_000)]
        world.trade()
        calls = world.calls("tx/multiple")
        await sweep(world)

        assert [answer["queued"] for answer in answers] == [10_000] + [0] * 9
        assert [answer["refused"] for answer in answers] == [10_000] + [20_000] * 9
        assert len(await candidates(world)) == 10_000
        assert sum(line["count"] for line in world.log.named("queue.filled")) == 190_000
        await world.check()
        assert world.calls("tx/multiple") - calls <= 3


@pytest.mark.slow
async def test_what_a_push_named_first_has_the_place_that_the_list_gives_it(tmp_path: Path) -> None:
    """A real swap in the middle of a flood: the list shows it, so it is verified before all that was only pushed."""
    async with competition_site(tmp_path) as made:
        world = made.world
        await pushed(world, 0, 5_000)
        chain = world.simulator.chain
        [tx] = world.trade(chain.wallets[0])
        pushed_again = Candidate(tx.tx_id, "chainhook", rank=2)
        await world.db.batch(store.enqueue(world.db, [pushed_again], world.clock.now()))
        await sweep(world)

        await world.check()
        assert (await world.all("SELECT source FROM swaps"))[0]["source"] == "chainhook"


async def test_a_push_that_comes_again_renews_nothing(tmp_path: Path) -> None:
    """Neither the time at which they are due, nor the time after which they are dismissed."""
    async with open_world(tmp_path) as world:
        await pushed(world, 0, 10)
        await sweep(world)
        before = await candidates(world)
        await world.clock.sleep(30)
        again = await pushed(world, 0, 10)

        assert [row["attempts"] for row in before] == [1] * 10
        assert await candidates(world) == before
        assert (again["queued"], again["alreadyKnown"], again["refused"]) == (0, 10, 0)


@pytest.mark.slow
async def test_what_only_a_push_names_is_dismissed_after_three_looks(tmp_path: Path) -> None:
    """Pushes name mined transactions, so one that Hiro does not know is none; an agent's stays for a week."""
    async with open_world(tmp_path) as world:
        await pushed(world, 0, 10)
        submitted = Candidate("0x" + "ab" * 32, "agent", rank=1)
        await world.db.batch(store.enqueue(world.db, [submitted], world.clock.now()))
        left = []
        for _ in range(3):
            await sweep(world)
            left.append(len(await candidates(world)))
            await world.clock.sleep(HOUR_S)

        assert left == [11, 11, 1]


async def dues(world: World, *queued: tuple[str, int, int]) -> list[list[str]]:
    """Queue candidates, each at a time from now on and with a rank; return all that are due, then with limits."""
    now = world.clock.now()
    for name, ahead_ms, rank in queued:
        candidate = Candidate(f"0x{name * 32}", "cron", rank=rank)
        await world.db.batch(store.enqueue(world.db, [candidate], now + ahead_ms))
    due = [
        await store.due(world.db, now + 9, 10),
        await store.due(world.db, now + 9, 10, pushed_max=1),
        await store.due(world.db, now + 9, 2),
    ]
    return [[each.txid[2:4] for each in found] for found in due]


async def test_what_is_due_comes_in_order_of_its_source(tmp_path: Path) -> None:
    """Our lists, then agents, then pushes, in whatever order they came; of pushes as many as are asked for."""
    async with open_world(tmp_path) as world:
        due = await dues(world, ("cc", 0, 2), ("dd", 1, 2), ("bb", 2, 1), ("aa", 3, 0))

    assert due == [["aa", "bb", "cc", "dd"], ["aa", "bb", "cc"], ["aa", "bb"]]


async def test_what_was_queued_while_the_clock_was_ahead_is_due_when_it_is_set_back(tmp_path: Path) -> None:
    """By the clock at that time it is due in days; one due in more than twelve hours was stored by another clock."""
    hour_ms = HOUR_S * 1000
    async with open_world(tmp_path) as world:
        listed = (("aa", 0, 0), ("bb", 13 * hour_ms, 0), ("cc", 48 * hour_ms, 0), ("dd", 12 * hour_ms + 9, 0))
        due = await dues(world, *listed, ("ee", 48 * hour_ms, 2), ("ff", 49 * hour_ms, 2))

    assert due == [["aa", "bb", "cc", "ee", "ff"], ["aa", "bb", "cc", "ee"], ["aa", "bb"]]


async def test_agents_have_a_bounded_queue_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer says that it is not queued, and why that does no harm."""
    monkeypatch.setitem(store.QUEUED_MAX, 1, 1)
    async with competition_site(tmp_path) as made:
        chain = made.world.simulator.chain
        waiting = [chain.swap(chain.wallets[0], wait_ms=None) for _ in range(2)]
        first, second = [(await made.submit(tx.tx_id)).json() for tx in waiting]
        chain.mine()
        await sweep(made.world)

        assert (first["accepted"], second["accepted"]) == (True, False)
        assert "the queue of submitted trades is full" in second["note"]
        assert [line["source"] for line in made.world.log.named("queue.filled")] == ["agent"]
        await made.world.check()


async def test_pushes_use_a_share_of_the_request_lane(tmp_path: Path) -> None:
    """A flood of small pushes is verified at once until the hook's share is used up, and by runs after that."""
    plan = Quota(second=100, minute=10_000, month=10_000, is_cap=True)  # a share of the first day is 2.6 calls
    async with open_world(tmp_path, plan=plan) as world:
        jobs, calls = competition_jobs(world.rules), world.calls()
        for number in range(10):
            await jobs[RECEIVE](world.request(), invented(number, 1))
            await jobs[VERIFY_QUEUED](world.request(), None)

        assert world.calls() - calls == 3
        assert len(world.log.named("queue.verify_failed")) == 7
        assert len(await candidates(world)) == 10


async def test_a_push_is_answered_with_what_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP, with status 200: sending it again would change nothing."""
    monkeypatch.setitem(store.QUEUED_MAX, 2, 1)
    async with competition_site(tmp_path) as made:
        chain = made.world.simulator.chain
        swaps = [chain.swap(chain.wallets[0]) for _ in range(3)]
        chain.mine()
        answer = await made.push(push_2(apply=swaps))
        await sweep(made.world)

        assert answer.status == 200
        nothing = {"alreadyKnown": 0, "ignored": 0, "rolledBack": 0}
        assert answer.json() == {"queued": 1, **nothing, "refused": 2, "tooLarge": False}
        await made.world.check()


def test_who_names_a_candidate_decides_when_it_is_verified() -> None:
    """Our own lists first, then agents, then pushes; the database sorts by these."""
    assert (store.LISTED, store.SUBMITTED, store.PUSHED) == (0, 1, 2)
