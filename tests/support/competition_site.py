"""The web app on a simulated chain, and pushes of both kinds of Chainhook."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.types import JSON
from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import ChainTransaction, SimulatedCall
from stacks_simulator.tokens import TRADED_TOKENS
from stacks_simulator.wallets import Wallet
from support.asgi import Answer
from support.competition import ROOMY, World, chain_of, open_world
from support.statuses import HEALTHY
from support.world import CHAINHOOK_SECRET, JSON_TYPE, Tocsin, settings_of, tocsin_in
from tocsin.board.publish import publish_board
from tocsin.prices.store import CachedPrice, put_token_price
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.health import HealthSnapshot
from tocsin.swaps.values import value_swaps
from tocsin.upstream.budget import Quota

TRADES = "/api/competition/trades"
CHAINHOOK = "/api/chainhook"
BEARER = {**JSON_TYPE, "authorization": f"Bearer {CHAINHOOK_SECRET}"}


class NotingClient(SchedulerClient):
    """Notes the jobs that requests ask for, with their arguments."""

    def __init__(self, stub: object, asked: list[tuple[str, Any]]) -> None:
        super().__init__(stub)
        self._asked = asked

    async def run_job(self, job: str, argument: JSON) -> JSON:
        self._asked.append((job, argument))
        return await super().run_job(job, argument)


@dataclass
class CompetitionSite(Tocsin):
    """Tocsin with agents on a chain. `world` is for work on the same data without the scheduler's object."""

    world: World
    asked: list[tuple[str, Any]]  # the jobs of requests

    @property
    def chain(self) -> Chain:
        return self.simulator.chain

    async def trade(self, wallet: Wallet, kind: str = "simple", **swap: Any) -> ChainTransaction:
        """Mine a swap of a wallet, and submit it."""
        tx = self.chain.swap(wallet, kind, **swap)
        self.chain.mine()
        await self.submit(tx.tx_id)
        return tx

    async def submit(self, txid: str) -> Answer:
        """Submit a trade, and publish the board as its task does, which does not run by itself here."""
        answer = await super().submit(txid)
        if answer.status == 200:
            deps = self.deps
            await value_swaps(deps.db, deps.clock.now(), deps.rules.floors)
            await publish_board(deps.db, deps.kv, deps.clock.now(), deps.rules)
        return answer

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
    """Open a healthy site with eligible agents on a quiet chain, and prices of all traded tokens."""
    simulator = chain_of(wallets)
    async with (
        open_world(directory, simulator, plan=plan) as world,
        tocsin_in(
            directory,
            simulator=simulator,
            db=world.db,
            log=world.log,
            **settings_of(simulator, plan),
            min_liquidity_usd=0,
            min_day_volume_usd=0,
        ) as made,
    ):
        for token in TRADED_TOKENS:
            await put_token_price(made.kv, token.id, CachedPrice(token.base_price, token.decimals, world.clock.now()))
        asked: list[tuple[str, Any]] = []
        stub = made.built.platform.stub
        made.with_deps(health=healthy, posts_per_minute_max=10_000, scheduler=lambda: NotingClient(stub("v1"), asked))
        yield made.extended(CompetitionSite, world=world, asked=asked)


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
