"""Swaps with a fee in a third token: recorded from every source, with their legs, and reopened after an upgrade."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.local.migrations import load
from support.competition import as_rows, open_world, sweep
from support.simulated_fetch import SimulatedFetch
from tocsin.fetch import FetchResponse
from tocsin.swaps import COMPETITION_MIGRATIONS
from tocsin.swaps.submit import SubmissionLane, submit

COMING_TO_THE_SITE = """
SELECT txid, sender, contract_id, function_name, token_in, token_out, amount_in, amount_out, burn_block_time,
  tx_status, scored_value, scored_at, source, raw_event_json
FROM swaps WHERE sender = ? AND tx_status = 'success' ORDER BY burn_block_time DESC LIMIT 50"""


async def test_an_upgrade_verifies_old_refusals_once_more(tmp_path: Path) -> None:
    """Those that gave several tokens for one are queued; the fee is recognised, liquidity is refused again."""
    async with open_world(tmp_path) as world:
        chain = world.simulator.chain
        fee, liquidity = (chain.swap(chain.wallets[0], kind) for kind in ("third_token_fee", "two_given"))
        chain.mine()
        for tx in (fee, liquidity):
            sql = """INSERT INTO refusals VALUES (?, 'incomplete_events', 'two given', ?, 'C.c', 'f', 1, 1, '0x',
              '{"A": "-5", "C": "-1", "B": "7"}', 'agent', 'v', 1)"""
            await world.db.prepare(sql).bind(tx.tx_id, tx.sender).run()
        await world.db.batch([world.db.prepare(sql) for sql in _reopening()])
        await sweep(world)
        rows = await world.rows()
        sources = await world.all("SELECT source FROM swaps")
        refused = await world.all("SELECT txid, reason FROM refusals")
        queued = await world.all("SELECT txid FROM candidates")

    assert rows == as_rows(chain.truth())
    assert [row["txid"] for row in rows] == [fee.tx_id]
    assert sources == [{"source": "agent"}]
    assert [row["txid"] for row in refused] == [liquidity.tx_id]
    assert refused[0]["reason"] != "two given"
    assert queued == []


def _reopening() -> tuple[str, ...]:
    return load(COMPETITION_MIGRATIONS)[5].statements[-2:]


@pytest.mark.parametrize(
    ("code", "legs", "again"),
    [
        ("incomplete_events", '{"A": "-5", "C": "-1", "B": "7"}', True),
        ("incomplete_events", '{"A": "-5", "C": "-1", "D": "-2", "B": "7"}', True),
        ("incomplete_events", '{"A": "-5", "B": "7", "C": "1"}', False),
        ("incomplete_events", '{"A": "-5", "C": "-1"}', False),
        ("incomplete_events", '{"A": "-5", "C": "-1", "B": "7", "D": "8"}', False),
        ("incomplete_events", "{}", False),
        ("incomplete_events", "not JSON", False),
        ("incomplete_events", None, False),
        ("invalid_amount", '{"A": "-5", "C": "-1", "B": "7"}', False),
    ],
)
def test_the_migration_queues_what_may_count_now(code: str, legs: str | None, again: bool) -> None:
    """Refusals of the fifth migration's database, exactly once each; all others stay."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        *older, newest = load(COMPETITION_MIGRATIONS)[:6]
        for migration in older:
            for statement in migration.statements:
                connection.execute(statement)
        connection.execute(
            "INSERT INTO refusals VALUES ('0x1', ?, 'r', 'S', 'C.c', 'f', 1, 1, '0x', ?, 'chainhook', 'v', 1)",
            (code, legs),
        )
        for statement in newest.statements:
            connection.execute(statement)
        queued = connection.execute("SELECT txid, source, contract_id, attempts, rank FROM candidates").fetchall()
        kept = connection.execute("SELECT count(*) FROM refusals").fetchone()[0]

    assert queued == ([("0x1", "chainhook", "C.c", 0, 0)] if again else [])
    assert kept == (not again)


async def test_the_sites_readers_find_their_columns(tmp_path: Path) -> None:
    """Swaps with the site's columns, and its statistics as a view that follows every swap."""
    async with open_world(tmp_path) as world:
        chain = world.simulator.chain
        wallet = chain.wallets[0].address
        tx = chain.swap(wallet, "third_token_fee")
        chain.swap(wallet)
        chain.mine()
        await sweep(world)
        rows = (await world.db.prepare(COMING_TO_THE_SITE).bind(wallet).all()).results
        (stats,) = await world.all("SELECT * FROM agent_swap_stats")
        (recorded,) = await world.all("SELECT max(recorded_at) / 1000 AS s, max(burn_block_time) AS t FROM swaps")
        await world.db.prepare("DELETE FROM swaps").run()
        gone = await world.all("SELECT * FROM agent_swap_stats")

    assert tx.swap is not None
    (with_fee,) = [row for row in rows if row["txid"] == tx.tx_id]
    legs = json.loads(with_fee["raw_event_json"])
    assert (with_fee["tx_status"], with_fee["scored_value"], with_fee["scored_at"]) == ("success", None, None)
    assert legs["legsIn"] == [{"asset_id": tx.swap.token_out, "amount": str(tx.swap.amount_out)}]
    assert legs["legsOut"][0] == {"asset_id": tx.swap.token_in, "amount": str(tx.swap.amount_in)}
    assert [(leg["amount"], leg["fee"]) for leg in legs["legsOut"][1:]] == [("5000", True)]
    assert stats == {
        "stx_address": wallet,
        "trade_count": 2,
        "verified_count": 2,
        "first_trade_at": stats["first_trade_at"],
        "last_trade_at": recorded["t"],
        "updated_at": recorded["s"],
    }
    assert gone == []


class SpoilingFetch(SimulatedFetch):
    """Every amount between strangers, in the events of v1, is not a number."""

    async def __call__(self, url: str, **options: Any) -> FetchResponse:
        answer = await super().__call__(url, **options)
        body = json.loads(answer.body)
        for entry in body.values() if "tx/multiple" in url else ():
            for event in entry["result"].get("events", ()):
                asset = event.get("asset", {})
                if entry["result"]["sender_address"] not in {asset.get("sender"), asset.get("recipient")}:
                    asset["amount"] = "1e5"
        return replace(answer, body=json.dumps(body).encode())


async def test_a_bad_amount_between_strangers_does_not_spoil_the_swap(tmp_path: Path) -> None:
    """It is counted in the log, and the swap is recorded by what is known of its sender."""
    async with open_world(tmp_path, fetch=SpoilingFetch) as world:
        chain = world.simulator.chain
        tx = chain.swap(chain.wallets[0], "bystanders")
        chain.mine()
        await submit(world.request(), world.rules, {"txid": tx.tx_id}, SubmissionLane())
        rows = await world.rows()

    assert rows == as_rows(chain.truth())
    assert [line["count"] for line in world.log.named("upstream.amounts_ignored")] == [1]
