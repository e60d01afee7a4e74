"""Run a server like the service's, with the web app, a bare handler of the same bytes, or an empty one."""

import argparse
import asyncio
import gc
import sys
import tempfile
from pathlib import Path
from typing import Any

import uvloop
from null_logger import NullLogger
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import DataDir
from holdfast.local.database import SqliteDatabase
from holdfast.local.kv import KV_MIGRATIONS, SqliteKV
from holdfast.local.migrations import load
from stacks_simulator.addresses import address_of
from tocsin.app import Platform, build
from tocsin.board.board import PublishedBoard, publish
from tocsin.board.types import BoardRow
from tocsin.fetch import FetchResponse
from tocsin.local.server import HttpServer
from tocsin.prices.store import STATIC_TOKENS, CachedPrice, publish_tokens, put_token_price
from tocsin.scheduler.client import SchedulerClient
from tocsin.settings import Settings, lookup_keys
from tocsin.swaps import COMPETITION_MIGRATIONS
from tocsin.upstream.answer import Answer, Ok
from tocsin.upstream.client import Relayed, UpstreamClient
from tocsin.upstream.limiter import BudgetLimiter, request_session
from tocsin.upstream.lookups import Lookup, LookUps
from tocsin.upstream.windows import Lane
from tocsin.web.deps import Process

LOOKUP_KEY = "a-key-of-the-benchmark"
LOOKUP_PATH = "/api/upstream/hiro/v1/addresses/stacks/SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"


async def empty(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def bare(app: ASGIApp, path: str) -> ASGIApp:
    """A handler that only sends the app's response to this path."""
    messages: list[Message] = []

    async def record(message: Message) -> None:
        messages.append(message)

    async def empty_body() -> Message:
        return {"type": "http.request"}

    headers = [(b"x-api-key", LOOKUP_KEY.encode())]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}
    await app({**scope, "client": None}, empty_body, record)
    start, body = messages

    async def handler(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(start)
        await send(body)

    return handler


def no_scheduler(_name: str) -> SchedulerClient:
    raise NotImplementedError("prices need no scheduler")


async def no_fetch(url: str, **_options: Any) -> FetchResponse:
    raise NotImplementedError(url)


async def site(directory: Path, tokens: int, agents: int, reads_per_minute_max: int) -> ASGIApp:
    """The app on real stores, with the prices of this number of tokens and a board of this number of agents."""
    clock = SystemClock()
    schemas = {"kv.sqlite": load(KV_MIGRATIONS), "db.sqlite": load(COMPETITION_MIGRATIONS)}
    DataDir(directory, schemas, now=clock.now(), logger=NullLogger())
    kv = SqliteKV(directory / "kv.sqlite", clock)
    token_ids = [*STATIC_TOKENS, *(f"{address_of('deployer')}.token-{n}::token-{n}" for n in range(tokens))][:tokens]
    for number, token_id in enumerate(token_ids):
        await put_token_price(kv, token_id, CachedPrice(0.85 + number, 6, clock.now()))
    await publish_tokens(kv, token_ids)
    rows = [agent_row(number) for number in range(agents)]
    await publish(kv, PublishedBoard(rows, clock.now(), clock.now(), final=False))

    platform = Platform(
        clock=clock,
        fetch=no_fetch,
        logger=NullLogger(),
        db=SqliteDatabase(directory / "db.sqlite"),
        kv=kv,
        stub=no_scheduler,
        process=Process(compress=True),
    )
    settings = Settings(reads_per_minute=reads_per_minute_max, lookup_key=lookup_keys(f"site:{LOOKUP_KEY}"))
    app = build(platform, settings)
    await keep_answer(app.env.look_ups, clock)
    return app.web()


class OneCall(BudgetLimiter):
    """In the place of a limiter."""

    def __init__(self) -> None:
        pass

    def calls_left(self, _lane: Lane) -> float:
        return 1.0


class Names(UpstreamClient):
    """In the place of a client: the name of every address."""

    def __init__(self) -> None:
        self.limiter = OneCall()

    async def relay(self, *_target: object, **_options: object) -> Answer[Relayed]:
        return Ok(Relayed(200, '{"names":["brisk-otter.btc"]}', '"a"', 1))


async def keep_answer(look_ups: LookUps, clock: SystemClock) -> None:
    """Let the look-up be answered from memory."""
    asked = Lookup("hiro", LOOKUP_PATH.removeprefix("/api/upstream/hiro"), None, "", 86_400, "site", 1.0)
    await look_ups.answer(Names(), asked, request_session(NullLogger()), clock)


def agent_row(number: int) -> BoardRow:
    """A value as long as a real one."""
    address = address_of(f"agent {number}")
    return BoardRow(
        rank=number + 1,
        stx_address=address,
        btc_address=f"bc1q{number:038x}",
        display_name=f"Agent {number} of the Board",
        bns_name=None,
        erc8004_agent_id=number,
        trade_count=10_000 - number,
        latest_trade_at=1_778_787_000_000 + number,
        volume_usd=1204.5321 * (number + 1),
        capital_usd=310.4,
        pnl_usd=-3.1234567 * number,
        pnl_percent=-0.2612345,
        pnl_at_trade_usd=2.4,
        valued_trade_count=12,
        unpriced_tokens=[],
        thin_tokens=[],
        wallets=[address],
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--app", choices=["site", "bare", "empty"], required=True)
    parser.add_argument("--path", default="/api/prices", help="what the bare handler sends")
    parser.add_argument("--agents", type=int, default=1_000)
    parser.add_argument("--tokens", type=int, default=13)
    parser.add_argument(
        "--reads-per-minute",
        type=int,
        default=0,
        help="limit for each client, as named by X-Forwarded-For; 0: no limit",
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        app: ASGIApp = empty
        if arguments.app != "empty":
            limit = arguments.reads_per_minute
            app = await site(Path(directory) / "data", arguments.tokens, arguments.agents, limit)
        if arguments.app == "bare":
            app = await bare(app, arguments.path)
        server = HttpServer("127.0.0.1", 0, ["127.0.0.1"] if arguments.reads_per_minute else [])
        await server.start(app)
        gc.freeze()  # as the service does
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
