"""The web app with a scripted scheduler on a real port, in its own thread, for commands to call."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from holdfast.local.clock import SystemClock
from holdfast.types import Database
from stacks_simulator.addresses import address_of
from support.asgi import serving
from support.patience import PATIENCE_S
from support.scripted_scheduler import ScriptedScheduler, scene
from tocsin.prices.store import NOT_REPORTED, PEGS, CachedPrice, put_token_price
from tocsin.web.app import create_app
from tocsin.web.deps import WebDeps
from tocsin.web.pages import page_routes

NAME = "Ann[bold] \x1b]0;owned\x07:smile:"
_AGENT = "INSERT INTO agents (btc_address, stx_address, display_name, erc8004_agent_id) VALUES ('bc1', ?, ?, 1)"
_CLAIM = "INSERT INTO claims (btc_address, status) VALUES ('bc1', 'verified')"
_SWAP = """
INSERT INTO swaps (txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out,
  burn_block_time, block_height, block_hash, tx_index, source, allowlist_version, recorded_at)
VALUES ('0x' || hex(zeroblob(32)), ?, 'SP.pool', 'swap', 'stx', '1452352941', ?, '1', 1778700600, 1, '0xb',
  0, 'agent', 'v', 0)"""


@dataclass
class Running:
    """A served scene, seen from another thread."""

    port: int
    scheduler: ScriptedScheduler
    loop: asyncio.AbstractEventLoop
    site: WebDeps

    def do(self, work: Callable[[], object]) -> None:
        """Run a function on the server's loop, and wait until it is done."""
        done: Future[None] = Future()

        def run() -> None:
            work()
            done.set_result(None)

        self.loop.call_soon_threadsafe(run)
        done.result(PATIENCE_S)

    def wait_for(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine on the server's loop, and wait until it is done."""
        asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)


async def another_trade(db: Database, number: int) -> None:
    """Add another trade of the same agent, in a later block."""
    row = _SWAP.replace("'0x' || hex(zeroblob(32))", "?").replace("1778700600, 1,", "1778700700, ?,")
    txid = f"0x{number:064x}"
    await db.prepare(row).bind(txid, address_of("deployer"), next(iter(PEGS)), number).run()


async def one_trade(db: Database) -> None:
    """Add an agent whose name contains terminal commands, and its trade."""
    sender = address_of("deployer")
    await db.batch(
        [db.prepare(_AGENT).bind(sender, NAME), db.prepare(_CLAIM), db.prepare(_SWAP).bind(sender, next(iter(PEGS)))]
    )


@contextmanager
def served_in_thread(directory: Path) -> Iterator[Running]:
    started: Future[Running] = Future()
    ended: Future[None] = Future()
    stop = asyncio.Event()

    async def main() -> None:
        async with scene(directory, SystemClock()) as made:
            await put_token_price(
                made.site.kv, "stx", CachedPrice(0.85, 6, made.site.clock.now(), NOT_REPORTED, 250_000.0, 18_000.0)
            )
            await one_trade(made.site.db)
            async with serving(create_app(made.site, page_routes())) as port:
                started.set_result(Running(port, made.scheduler, asyncio.get_running_loop(), made.site))
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
