"""The competition on a simulated chain: a database, a client with a real budget, and real contexts."""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import Clock, Database, Statement
from holdfast_testing.captured_log import CapturedLog
from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import ChainTransaction, SimulatedCall
from stacks_simulator.simulator import Simulator
from stacks_simulator.truth import TrueSwap
from stacks_simulator.wallets import Wallet
from support.history_rows import registered
from support.local_store import open_competition
from support.simulated import quiet_simulator
from support.simulated_fetch import HIRO_URL, SimulatedFetch
from tocsin.board.board import BoardPage, BoardQuery, all_rows, page_of, unit_prices
from tocsin.fetch import Fetch, FetchResponse
from tocsin.prices.price import Price
from tocsin.scheduler.task import Attempt, ContextBindings, TaskContext, TaskResult, WorkContext
from tocsin.settings import Settings
from tocsin.shape import FreeForm
from tocsin.stacks import MinedAt, Transaction
from tocsin.swaps.feed import follow_network_tasks
from tocsin.swaps.rules import AllowList, Code, Rules, built_in
from tocsin.swaps.store import amount, drift
from tocsin.swaps.submit import SubmissionLane, submit
from tocsin.swaps.sweep import sweep_task
from tocsin.swaps.types import SubmitAnswer
from tocsin.upstream.budget import Quota
from tocsin.upstream.client import UpstreamClient
from tocsin.upstream.hiro import HiroClient, hiro_upstream
from tocsin.upstream.limiter import BudgetLimiter, request_session, restored_budget, task_session

ROOMY = Quota(second=10_000, minute=100_000, month=10_000_000)
CADENCE_MS = Settings().sweep_cadence
PAUSED = "the scheduler is paused"
STANDING_STILL = Settings(block_age_max=7 * 86_400_000)  # for a chain that a test has stopped


@dataclass
class World:
    """Everything around the competition."""

    db: Database
    simulator: Simulator
    clock: Clock
    rules: Rules
    hiro: HiroClient
    log: CapturedLog = field(default_factory=CapturedLog)
    in_progress: set[str] = field(default_factory=set)  # runs of one object share it

    def run(self, *, stop_after: int | None = None, slice_s: float = 600.0, by_hand: bool = False) -> TaskContext:
        """Return a context for one run of a task; after this many checkpoints the next one stops it, like a pause."""
        checkpoints = count(1)

        def stop_reason() -> str | None:
            return PAUSED if stop_after is not None and next(checkpoints) > stop_after else None

        return TaskContext(
            self._bindings(),
            task_session(self.log),
            slice_ms=int(slice_s * 1000),
            attempt=Attempt(trigger="refresh" if by_hand else "alarm"),
            stop_reason=stop_reason,
        )

    def request(self) -> WorkContext:
        """A context for one visitor's request."""
        return WorkContext(self._bindings(), request_session(self.log))

    def trade(self, *wallets: Wallet | str, kind: str = "simple") -> list[ChainTransaction]:
        """Mine a block with a swap of each of these wallets, by default of all agents."""
        chain = self.simulator.chain
        sent = [chain.swap(wallet, kind) for wallet in wallets or chain.wallets]
        chain.mine()
        return sent

    async def submit(self, txid: str, rules: Rules | None = None, *, again: bool = False) -> SubmitAnswer:
        """Submit a trade, as the only client."""
        return await submit(self.request(), rules or self.rules, {"txid": txid}, SubmissionLane(), again=again)

    @contextmanager
    def _fetching(self, fetch: Fetch) -> Iterator[None]:
        client = self.hiro.client
        whole, client._fetch = client._fetch, fetch
        try:
            yield
        finally:
            client._fetch = whole

    def answering(self, answer: Callable[[str], FetchResponse | str | None]) -> AbstractContextManager[None]:
        """Let Hiro's answer to a URL be this one, or its own to another URL; None: its own."""
        whole = self.hiro.client._fetch

        async def fetch(url: str, **options: Any) -> FetchResponse:
            given = answer(url)
            return given if isinstance(given, FetchResponse) else await whole(given or url, **options)

        return self._fetching(fetch)

    def changing(self, part: str, change: Callable[[str, Any], object]) -> AbstractContextManager[None]:
        """Let `change` edit the JSON of each 200 from a URL that contains `part`."""
        whole = self.hiro.client._fetch

        async def fetch(url: str, **options: Any) -> FetchResponse:
            answer = await whole(url, **options)
            if part not in url or answer.status != 200:
                return answer
            body = json.loads(answer.body)
            change(url, body)
            return FetchResponse(200, answer.headers, json.dumps(body).encode())

        return self._fetching(fetch)

    async def wait(self, seconds: float) -> None:
        """Let time pass for the clock and the chain."""
        await self.clock.sleep(seconds)
        self.simulator.advance()

    def _bindings(self) -> ContextBindings:
        return ContextBindings(self.clock, {"hiro": self.hiro}, self.db, in_progress=self.in_progress)

    async def rows(self) -> list[dict[str, Any]]:
        """The recorded swaps as the simulator's truth writes them."""
        swaps = (await self.db.prepare(_SWAPS).all()).results
        return [{**row, "amount_in": int(row["amount_in"]), "amount_out": int(row["amount_out"])} for row in swaps]

    async def check(self, count: int | None = None, **options: Any) -> None:
        """Check that exactly the true swaps are recorded, how many they are, and that the totals are their sums."""
        rows = await self.rows()
        assert rows == as_rows(self.simulator.chain.truth(**options))
        assert count is None or len(rows) == count
        assert await drift(self.db) == {}

    async def all(self, sql: str, *values: str | int | None) -> list[dict[str, Any]]:
        return (await self.db.prepare(sql).bind(*values).all()).results

    def calls(self, part: str = "") -> int:
        return sum(part in request.path for request in self.simulator.requests)

    def paths(self, since: int = 0) -> list[str]:
        """Return the paths of the requests after the first `since` ones."""
        return [request.path for request in self.simulator.requests][since:]


_SWAPS = """
SELECT txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out, burn_block_time,
  block_height FROM swaps ORDER BY block_height, txid"""


@asynccontextmanager
async def open_world(
    directory: Path,
    simulator: Simulator | None = None,
    *,
    rules: Rules | None = None,
    plan: Quota = ROOMY,
    fetch: Callable[[Simulator], Fetch] = SimulatedFetch,
    wrap: Callable[[Database], Database] = lambda db: db,
    latency_s: float = 0.0,
) -> AsyncIterator[World]:
    """Open a world on a chain whose wallets are registered; the default is a quiet chain with three wallets."""
    simulator = simulator or quiet_simulator(VirtualClock())
    log = CapturedLog()
    budget = restored_budget(plan, None, simulator.clock)
    limiter = BudgetLimiter("hiro", budget, simulator.clock, Random(7).random, log, lambda _: None)
    wire = fetch(simulator)
    if isinstance(wire, SimulatedFetch):
        wire.latency_s = latency_s
    upstream = hiro_upstream(HIRO_URL, "key", plan)
    client = UpstreamClient(upstream, wire, limiter)
    async with open_competition(directory) as db:
        await register(db, simulator.chain.wallets)
        rules = rules or Rules(built_in(), simulator.chain.campaign.start_s, simulator.chain.campaign.end_s)
        yield World(wrap(db), simulator, simulator.clock, rules, HiroClient(client), log)


@asynccontextmanager
async def trading(
    directory: Path, chain: Simulator | int | None = None, **options: Any
) -> AsyncIterator[tuple[World, Chain]]:
    """Open a world with its chain: a given one, a quiet one with this many eligible wallets, or the default."""
    simulator = chain_of(chain) if isinstance(chain, int) else chain
    async with open_world(directory, simulator, **options) as world:
        yield world, world.simulator.chain


@asynccontextmanager
async def followed(directory: Path, chain: Simulator | int, **options: Any) -> AsyncIterator[tuple[World, Chain]]:
    """Open a world in which the feed has begun and the sweep has read everything once."""
    async with trading(directory, chain, **options) as (world, made):
        await started(world)
        yield world, made


def listing(world: World, tx: ChainTransaction) -> Rules:
    """Return the rules under which this call counts as well."""
    assert isinstance(tx.payload, SimulatedCall)
    added = AllowList({tx.payload.contract: frozenset({tx.payload.function})})
    return Rules(built_in().plus(added), world.rules.start_s)


def transaction(tx_id: str, sender: str, **values: Any) -> Transaction:
    """Return a successful call, as Hiro's lists show it; `values` are its other fields."""
    fields: dict[str, Any] = {
        "sponsored": False,
        "fee": 0,
        "status": "success",
        "type": "contract_call",
        "contract_call": None,
        "mined": MinedAt(1, "0x", 0, 0),
        "canonical": True,
        "event_count": None,
    }
    return Transaction(tx_id, sender, **{**fields, **values})


async def register(db: Database, wallets: Iterable[Wallet]) -> None:
    """Register wallets as agents of their tier, or change the tier of registered ones."""
    statements: list[Statement] = []
    for wallet in wallets:
        btc_address = wallet.btc_address or f"bc1{wallet.address}"
        status = "verified" if wallet.tier in {"eligible", "genesis"} else "pending"
        statements += registered(db, btc_address, wallet.address, wallet.erc8004_agent_id, status=status)
    await db.batch(statements)


def as_rows(truth: Iterable[TrueSwap]) -> list[dict[str, Any]]:
    """The truth as `World.rows` writes it."""
    return [{name: getattr(swap, name) for name in TrueSwap.__dataclass_fields__} for swap in truth]


async def sweep(
    world: World, context: TaskContext | None = None, rules: Rules | None = None, after_s: float = 0
) -> TaskResult:
    """One run of the task, some seconds later."""
    await world.clock.sleep(after_s)
    return await sweep_task(Settings(), rules or world.rules).run(context or world.run())


async def feed(
    world: World,
    context: TaskContext | None = None,
    rules: Rules | None = None,
    settings: Settings | None = None,
    after_s: float = 0,
) -> TaskResult:
    """One run of the task that follows the network's list, some seconds later."""
    await world.clock.sleep(after_s)
    (task,) = follow_network_tasks(settings or Settings(), rules or world.rules)
    return await task.run(context or world.run(slice_s=task.slice_ms / 1000))


async def follow(world: World, minutes: int, settings: Settings | None = None) -> list[TaskResult]:
    """Run the feed every minute and the sweep every fifteen, from the next minute on; return the feed's results."""
    results = []
    for minute in range(minutes):
        await world.clock.sleep(60)
        results.append(await feed(world, settings=settings))
        if minute % 15 == 0:
            await sweep(world)
    return results


def number(counters: FreeForm, name: str) -> int:
    """A counter that must be a whole number."""
    value = counters[name]
    assert type(value) is int, (name, value)
    return value


def verdict_of(answer: SubmitAnswer) -> str:
    """The verdict in the words of `Explanation.status`."""
    if answer.trade is not None:
        return "verified"
    return "pending" if answer.code == Code.PENDING else "rejected"


def chain_of(wallets: int, *, all_eligible: bool = True) -> Simulator:
    """A quiet simulator with this many agents, by default all of them eligible."""
    simulator = quiet_simulator(VirtualClock(), wallets=wallets)
    if all_eligible:
        chain = simulator.chain
        chain.wallets = tuple(
            Wallet(w.address, "eligible", w.btc_address, w.display_name, number)
            for number, w in enumerate(chain.wallets, 1)
        )
    return simulator


def price_of(usd: float | None, decimals: int | None) -> Price:
    """A price that has just arrived."""
    return Price(usd, decimals, 0, stale=False, source="tenero")


async def leaderboard(db: Database, prices: Mapping[str, Price], *, limit: int = 50, **order: Any) -> BoardPage:
    """A page of the board, computed from the database."""
    query = BoardQuery(limit=limit, **order)
    return page_of(await all_rows(db, unit_prices(prices), follow_max=10_000), query)


async def started(world: World) -> None:
    """The feed has begun on a list of several pages, and the sweep has read everything once."""
    world.simulator.chain.dust(world.simulator.chain.strangers[0], 120)
    world.simulator.chain.mine()
    await feed(world)
    await sweep(world)
    await world.wait(120)


def frozen(simulator: Simulator) -> None:
    """Stop the chain, so that there is one truth to compare with."""
    simulator.advance()
    simulator._chain_origin_ms = simulator.chain.now_ms
    simulator.speed = 0.0


def summed(pairs: list[dict[str, Any]]) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    """The stored totals of each pair, as `sums_of` writes them."""
    return {
        (row["sender"], row["token_in"], row["token_out"]): (row["trades"], amount(row, "in"), amount(row, "out"))
        for row in pairs
    }


def sums_of(truth: list[Any]) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    """Trades and amounts of each pair."""
    sums: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    for swap in truth:
        key = (swap.sender, swap.token_in, swap.token_out)
        trades, sum_in, sum_out = sums.get(key, (0, 0, 0))
        sums[key] = (trades + 1, sum_in + swap.amount_in, sum_out + swap.amount_out)
    return sums
