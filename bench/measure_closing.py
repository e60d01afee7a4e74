"""Measure closing rounds on a real service: the lateness of the alarm, and a round of many swaps.

    python bench/measure_closing.py [--part late|big] [--rounds 10] [--swaps 100000]

`late` starts the real service with rounds that end two seconds apart, and takes a minute or less. `big` closes one
round with a database on disk. It prints the longest time that the event loop was blocked, in processor time, because
wall time means little on a shared machine.
"""

import argparse
import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Thread

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "packages/holdfast/tests"))
from measure_rounds import ENDS_AT, STARTS_AT, competition

from holdfast.local.database import SqliteDatabase
from holdfast_testing.stores import migrated
from support.processes import SERVE, ServiceProcess, running
from support.round_world import ALONE, RoundWorld, SetClock, make_data
from tocsin.rounds.round import RoundInputs
from tocsin.swaps import COMPETITION_MIGRATIONS

_SWAP = """
INSERT INTO swaps (txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out,
  burn_block_time, block_height, tx_index, source, block_hash, allowlist_version, recorded_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '0x', 'v', 0)"""
_AGENT = "INSERT INTO agents (btc_address, stx_address, erc8004_agent_id) VALUES (?, ?, ?)"
_PRICE = """
INSERT INTO price_points (token, at, price_usd, decimals, source, liquidity_usd, volume_usd)
SELECT id, ?, ?, ?, 'tenero', '500000', '20000' FROM price_tokens WHERE token = ?"""


def late(rounds: int) -> None:
    with TemporaryDirectory() as name:
        first = int(time.time()) + 6
        data, ends = Path(name) / "data", [first + 2 * number for number in range(rounds)]
        make_data(data, ends)
        Thread(target=sweep_at, args=(data / "db.sqlite", ends), daemon=True).start()
        found: list[int] = []
        written: list[float] = []
        with running(ServiceProcess(data, command=SERVE, **ALONE)) as service:
            while len(written) < rounds:
                event = json.loads(service.line())
                if event["event"] == "round.closed":
                    found.append(event["late_ms"])
                elif event["event"] == "round.finalized":
                    written.append(event["at"] - 1000 * (first + 2 * len(written)))
    print(f"late by {median(found):.0f} ms, at most {max(found)} ms: {rounds} closings")
    print(f"the result was written {median(written):.0f} ms after the end, at most {max(written):.0f}")


def sweep_at(path: Path, ends: Sequence[int]) -> None:
    """Record a sweep that begins exactly at the end of each round. It is in the database a moment before."""
    for end in ends[1:]:
        time.sleep(max(0.0, end - 0.5 - time.time()))
        with closing(sqlite3.connect(path, timeout=10)) as db, db:
            db.execute("UPDATE competition_state SET value = ? WHERE key = 'competition_swept_at'", (f"{end}000",))


def fill(path: Path, inputs: RoundInputs) -> None:
    """Fill the database without its triggers, with which a million swaps would take minutes."""
    migrated(path, COMPETITION_MIGRATIONS)
    with closing(sqlite3.connect(path)) as db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        db.executemany(_AGENT, [(a.btc_address, a.stx_address, a.erc8004_agent_id) for a in inputs.agents])
        db.execute("INSERT INTO claims (btc_address, status) SELECT btc_address, 'verified' FROM agents")
        db.executemany(_SWAP, inputs.swaps)
        for price in inputs.prices:
            db.execute("INSERT INTO price_tokens (token) VALUES (?)", (price.token_id,))
            times = range(ENDS_AT * 1000 - 3_900_000, ENDS_AT * 1000 + 1, 300_000)
            figures = (price.price_usd, price.decimals, price.token_id)
            db.executemany(_PRICE, [(at, *figures) for at in times])
        for _, sql in triggers:
            db.execute(sql)
        db.commit()


async def measured_run(world: RoundWorld, at_s: int, shown: str) -> None:
    """One run of the task: wall time, processor time, and the longest time that the event loop was blocked."""
    longest = 0.0

    async def other() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.001)
            longest = max(longest, time.thread_time() - began)

    task = asyncio.create_task(other())
    began, used = time.perf_counter(), time.process_time()
    await world.run(at_s)
    took = (time.perf_counter() - began, time.process_time() - used)
    task.cancel()
    print(f"{shown:<48} {took[0]:6.2f} s, {took[1]:6.2f} s of CPU")
    print(f"  the event loop was blocked for {longest * 1000:.0f} ms of CPU at most (goal 100)")


async def close(path: Path) -> None:
    db = SqliteDatabase(path)
    world = RoundWorld(db, SetClock(STARTS_AT))
    await world.act("add", roundId="week-1", startsAt=STARTS_AT, endsAt=ENDS_AT)
    await world.swept(ENDS_AT + 3_600)
    await measured_run(world, ENDS_AT + 3_600, "close, capture and finalize it")
    assert await world.status("week-1") == "finalized"
    await db.close()


def big(swaps: int) -> None:
    with TemporaryDirectory() as name:
        path = Path(name) / "db.sqlite"
        fill(path, competition(swaps))
        asyncio.run(close(path))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("late", "big"))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--swaps", type=int, default=100_000)
    asked = parser.parse_args()
    if asked.part in {None, "late"}:
        late(asked.rounds)
    if asked.part in {None, "big"}:
        big(asked.swaps)
