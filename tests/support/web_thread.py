"""Tocsin on a real port, in its own thread, for commands and browsers."""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from holdfast.local.clock import SystemClock
from holdfast.types import Database
from stacks_simulator.addresses import address_of
from support.asgi import serving
from support.patience import PATIENCE_S
from support.scheduler import run_entries
from support.service_states import Case, entries_of, spent_budget
from support.statuses import HIRO_503, run_record
from support.world import Tocsin, tocsin_in
from tocsin.prices.store import PEGS, CachedPrice, put_token_price
from tocsin.scheduler.types import AuditRecord, DayTotals, RunFilter, RunRecord, Status, TaskTotals

T = TypeVar("T")

NAME = "Ann[bold] \x1b]0;owned\x07:smile:"
THREE_RUNS = DayTotals(
    "2026-05-13", {"tenero": TaskTotals(3, {"ok": 2, "failed": 1}, calls=27, items=9, duration_ms=600)}
).to_json()
_AGENT = "INSERT INTO agents (btc_address, stx_address, display_name, erc8004_agent_id) VALUES ('bc1', ?, ?, 1)"
_CLAIM = "INSERT INTO claims (btc_address, status) VALUES ('bc1', 'verified')"
SWAP = """
INSERT INTO swaps (txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out,
  burn_block_time, block_height, block_hash, tx_index, source, allowlist_version, recorded_at, raw_event_json)
VALUES ('0x' || hex(zeroblob(32)), ?1, 'SP.pool', 'swap', 'stx', '1452352941', ?2, '1', 1778700600, 1, '0xb',
  0, 'agent', 'v', 0, json_object('legsOut', json_array(json_object('asset_id', 'stx', 'amount', '1452352941')),
    'legsIn', json_array(json_object('asset_id', ?2, 'amount', '1'))))"""


@dataclass
class Running:
    """Tocsin in another thread."""

    port: int
    tocsin: Tocsin
    loop: asyncio.AbstractEventLoop

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Let a coroutine run on the server's loop; it may end with the server."""
        asyncio.run_coroutine_threadsafe(work, self.loop)

    def status(self) -> Status:
        return self.wait_for(self.tocsin.client().status())

    def runs(self, task: str | None = None) -> list[RunRecord]:
        """The runs that were asked for, newest first."""
        return self.wait_for(self.tocsin.client().runs(RunFilter(task, 50, trigger="refresh"))).runs

    def audited(self) -> list[AuditRecord]:
        """The newest first."""
        return self.wait_for(self.tocsin.client().audit(50)).records


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def usual_entries() -> dict[str, Any]:
    """What the object of a service has stored whose sweep failed twice, a run and a day of long ago among it."""
    failed: dict[str, Any] = {"consecutiveFailures": 2, "lastError": HIRO_503.to_json()}
    usual = Case("ready", True, changes={"sweep": failed, "tenero": {"lastRun": 7}})
    return {
        **entries_of(usual, now_ms()),
        **run_entries(run_record(id=7)),
        "budget:tenero": spent_budget(now_ms()),
        "day:2026-05-13": THREE_RUNS,
    }


async def one_trade(db: Database) -> None:
    """Add an agent whose name contains terminal commands, and its trade."""
    sender = address_of("deployer")
    await db.batch(
        [db.prepare(_AGENT).bind(sender, NAME), db.prepare(_CLAIM), db.prepare(SWAP).bind(sender, next(iter(PEGS)))]
    )


@contextmanager
def served_in_thread(directory: Path, **options: Any) -> Iterator[Running]:
    """Serve Tocsin with one agent, its trade and a price. The options are those of `tocsin_in`."""
    started: Future[Running] = Future()
    ended: Future[None] = Future()
    stop = asyncio.Event()
    known = {"stored": usual_entries(), **options}

    async def main() -> None:
        async with tocsin_in(directory, clock=SystemClock(), arm="stub" not in known, **known) as made:
            await put_token_price(made.kv, "stx", CachedPrice(0.85, 6, made.clock.now(), {}, 250_000.0, 18_000.0))
            await one_trade(made.db)
            async with serving(made.app) as port:
                started.set_result(Running(port, made, asyncio.get_running_loop()))
                await stop.wait()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            (ended if started.done() else started).set_exception(error)
        else:
            ended.set_result(None)

    thread = Thread(target=run)
    thread.start()
    running = started.result(PATIENCE_S)
    try:
        yield running
    finally:
        running.loop.call_soon_threadsafe(stop.set)
        thread.join()
    ended.result()
