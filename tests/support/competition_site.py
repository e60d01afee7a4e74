"""The web app on a simulated chain: the object's own jobs handle what it asks of the object."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from holdfast.types import JSON
from holdfast.values import decode, encode
from holdfast_testing.stores import open_kv
from stacks_simulator.chain_records import ChainTransaction, SimulatedCall
from stacks_simulator.tokens import TRADED_TOKENS
from support import asgi
from support.asgi import Answer
from support.competition import ROOMY, World, chain_of, open_world
from support.scripted_scheduler import CHAINHOOK_SECRET, HEALTHY, OLD_CHAINHOOK_SECRET, named_keys
from tocsin.prices.store import CachedPrice, put_token_price
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.health import HealthSnapshot
from tocsin.swaps.submit import competition_jobs
from tocsin.upstream.budget import Quota
from tocsin.web.app import create_app
from tocsin.web.deps import InForce, Keys, WebDeps

TRADES = "/api/competition/trades"
CHAINHOOK = "/api/chainhook"
JSON_TYPE = {"content-type": "application/json"}
BEARER = {**JSON_TYPE, "authorization": f"Bearer {CHAINHOOK_SECRET}"}


class JobStub:
    """The part of the scheduler's stub that requests use: it runs the real jobs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._jobs = competition_jobs(world.rules)
        self.asked: list[str] = []
        self.woken: list[tuple[str, ...]] = []  # the tasks that a job asked for

    async def run_job(self, job: str, argument: JSON) -> JSON:
        self.asked.append(job)
        arrived = _sent(argument, "the argument")
        context = self._world.request()
        context.wake = lambda *tasks: self.woken.append(tasks)
        return _sent(await self._jobs[job](context, arrived), "the result")


def _sent(value: JSON, name: str) -> JSON:
    """Return the value after passing through RPC."""
    arrived: JSON = decode(encode(value, name))
    return arrived


@dataclass
class CompetitionSite:
    """The app, the world behind it, and ways to send requests."""

    world: World
    site: WebDeps
    app: ASGIApp
    performer: JobStub

    async def get(self, target: str, **headers: str) -> Answer:
        return await asgi.ask(self.app, target, headers=headers)

    async def post(self, target: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await asgi.ask(self.app, target, method="POST", headers=headers or JSON_TYPE, body=data)

    async def submit(self, txid: str) -> Answer:
        return await self.post(TRADES, {"txid": txid})

    async def push(self, body: Any) -> Answer:
        return await self.post(CHAINHOOK, body, BEARER)

    async def stored(self) -> dict[str, int]:
        """How many rows the competition has written."""
        tables = ("swaps", "refusals", "candidates")
        return {table: (await self.world.all(f"SELECT count(*) AS n FROM {table}"))[0]["n"] for table in tables}


async def healthy() -> HealthSnapshot:
    return HEALTHY


@asynccontextmanager
async def competition_site(directory: Path, wallets: int = 3, plan: Quota = ROOMY) -> AsyncIterator[CompetitionSite]:
    """Open a site with eligible agents on a quiet chain, and prices of all traded tokens."""
    async with open_world(directory, chain_of(wallets), plan=plan) as world, open_kv(directory, world.clock) as kv:
        for token in TRADED_TOKENS:
            await put_token_price(kv, token.id, CachedPrice(token.base_price, token.decimals, world.clock.now()))
        performer = JobStub(world)
        site = WebDeps(
            scheduler=lambda: SchedulerClient(performer),
            kv=kv,
            db=world.db,
            clock=world.clock,
            logger=world.log,
            in_force=InForce(Keys(chainhook=named_keys(CHAINHOOK_SECRET, OLD_CHAINHOOK_SECRET)), world.rules),
            health=healthy,
            version="1.2.3",
            posts_per_minute_max=10_000,
        )
        yield CompetitionSite(world, site, create_app(site), performer)


def push_2(apply: Iterable[ChainTransaction] = (), rollback: Iterable[ChainTransaction] = ()) -> Any:
    """A payload of Chainhooks 2.0, one block for each transaction."""
    return {
        "event": {
            "chain": "stacks",
            "network": "mainnet",
            "apply": [_block(_transaction_2(tx)) for tx in apply],
            "rollback": [_block(_transaction_2(tx)) for tx in rollback],
        },
        "chainhook": {"uuid": "u", "name": "swaps"},
    }


def push_1(apply: Iterable[ChainTransaction] = (), rollback: Iterable[ChainTransaction] = ()) -> Any:
    """A payload of a self-hosted Chainhook."""
    return {
        "apply": [_block(_transaction_1(tx)) for tx in apply],
        "rollback": [_block(_transaction_1(tx)) for tx in rollback],
        "events": [],
        "chainhook": {"uuid": "u", "is_streaming_blocks": True},
    }


def _block(transaction: Any) -> Any:
    return {"block_identifier": {"index": 1, "hash": "0xb1"}, "timestamp": 1, "transactions": [transaction]}


def _transaction_2(tx: ChainTransaction) -> Any:
    called: Any = {"type": "token_transfer"}
    if isinstance(tx.payload, SimulatedCall):
        metadata = {"contract_identifier": tx.payload.contract, "function_name": tx.payload.function}
        called = {"type": "contract_call", "metadata": metadata}
    return {
        "transaction_identifier": {"hash": tx.tx_id},
        "metadata": {"type": "contract_call", "status": "success", "sender_address": tx.sender},
        "operations": [{"type": "fee"}, called],
    }


def _transaction_1(tx: ChainTransaction) -> Any:
    kind: Any = {"type": "NativeTokenTransfer"}
    if isinstance(tx.payload, SimulatedCall):
        data = {"contract_identifier": tx.payload.contract, "method": tx.payload.function}
        kind = {"type": "ContractCall", "data": data}
    return {
        "transaction_identifier": {"hash": tx.tx_id},
        "metadata": {"success": True, "sender": tx.sender, "kind": kind},
        "operations": [],
    }
