"""The web app with a scripted scheduler on a real port, in a thread of its own, for commands to talk to."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from support.scripted_scheduler import ScriptedScheduler, scene
from support.web_server import serving
from tocsin.platform.local.clock import SystemClock
from tocsin.prices.cache import CachedPrice, put_token_price
from tocsin.web.app import create_app

BOARD = {
    "rows": [
        {
            "rank": 1,
            "stxAddress": "SP1",
            "displayName": "Ann[bold] \x1b]0;owned\x07:smile:",
            "tradeCount": 1_234,
            "latestTradeAt": 1778700600,
            "volumeUsd": 1234.5,
            "pnlUsd": -0.5,
            "pnlPercent": None,
        }
    ],
    "asOf": 0,
    "pricesAsOf": 0,
    "next": None,
}


@dataclass
class Running:
    """A served scene, seen from another thread."""

    port: int
    scheduler: ScriptedScheduler
    loop: asyncio.AbstractEventLoop

    def do(self, work: Callable[[], object]) -> None:
        """Run it on the server's loop, and wait until it has."""
        done: Future[None] = Future()

        def run() -> None:
            work()
            done.set_result(None)

        self.loop.call_soon_threadsafe(run)
        done.result(timeout=30)


async def _board(_request: Request) -> JSONResponse:
    return JSONResponse(BOARD)


@contextmanager
def served_in_thread(directory: Path) -> Iterator[Running]:
    started: Future[Running] = Future()
    stop = asyncio.Event()

    async def main() -> None:
        async with scene(directory, SystemClock()) as made:
            await put_token_price(made.site.kv, "stx", CachedPrice(0.85, 6, made.site.clock.now()))
            pages = [Route("/api/competition/leaderboard", _board)]
            async with serving(create_app(made.site, pages)) as port:
                started.set_result(Running(port, made.scheduler, asyncio.get_running_loop()))
                await stop.wait()

    thread = Thread(target=lambda: asyncio.run(main()))
    thread.start()
    running = started.result(timeout=30)
    try:
        yield running
    finally:
        running.loop.call_soon_threadsafe(stop.set)
        thread.join()
