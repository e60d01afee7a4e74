"""Run both services over the same simulated month: the real scheduler, and the model of the reference."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from month_incidents import DAY_MS, HOUR_MS, TENERO_PLAN, Change, Incident, ProcessFault, prepare
from null_logger import NullLogger
from reference_model import REFERENCE_JOBS, ReferenceJob, ReferenceModel
from reference_rules import ReferenceSwap

from holdfast.errors import ObjectReset
from holdfast.local.runtime import Runtime
from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import KV, Database
from holdfast_testing.stores import make_objects_file, open_kv
from stacks_simulator.chain import Chain
from stacks_simulator.http_messages import Delivery, SimulatedRequest, UpstreamName
from stacks_simulator.simulator import Simulator
from stacks_simulator.tokens import ALEX, B42, DIKO, DUST, SBTC, STSTX, STX, WELSH
from stacks_simulator.traffic import Traffic, start_traffic
from support.competition import register
from support.local_store import open_competition
from support.simulated_fetch import HIRO_URL, TENERO_URL, SimulatedFetch
from tocsin.app import Parts, Platform, build
from tocsin.prices.refresh import refresh_prices_task
from tocsin.prices.store import get_cached_token_prices
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.health import HealthSnapshot, health_of
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.settings import Settings
from tocsin.swaps.feed import follow_network_tasks
from tocsin.swaps.rules import Rules, built_in
from tocsin.swaps.submit import competition_jobs
from tocsin.swaps.sweep import sweep_task
from tocsin.upstream.budget import REQUEST_SHARE, Quota
from tocsin.upstream.hiro import hiro_upstream
from tocsin.upstream.tenero import tenero_upstream

LATENCY_S = 0.06
MINUTE_MS = 60_000
LOOK_MINUTES = 5  # between two checks of a service's state; each stands for this many minutes
VISIT_LOOKS = 2
SILENT_MS = HOUR_MS
STALE_MS = 2 * HOUR_MS
PRICED_FROM_MS = 6 * HOUR_MS  # by then every token has been traded
LAST_MS = 6 * HOUR_MS  # more than four laps of the reference
PRICED_TOKENS = tuple(token.id for token in (STX, SBTC, STSTX, ALEX, WELSH, DIKO, B42, DUST))
WALLETS = 430
TRAFFIC = Traffic(swaps=30, strangers=20, transfers=45, floods=0.1, reorgs=0.25, network=120)
FILES = ("objects.sqlite", "objects.sqlite-wal", "objects.sqlite-shm")


class CountingSimulator(Simulator):
    """Counts the calls of each day."""

    def __init__(self, chain: Chain, clock: VirtualClock) -> None:
        super().__init__(chain, clock)
        self.calls: Counter[tuple[UpstreamName, int]] = Counter()

    def handle(self, upstream: UpstreamName, request: SimulatedRequest) -> Delivery:
        self.calls[upstream, (self.clock.now() - self.chain.start_ms) // DAY_MS] += 1
        return super().handle(upstream, request)


@dataclass
class MonthOutcome:
    """What one service did in the month. Days are counted from its start."""

    name: str
    days: int
    swaps: int = 0  # that count, in the compared time
    missed: Counter[int] = field(default_factory=Counter)  # by the day of the swap
    refused: Counter[int] = field(default_factory=Counter)  # of the missed ones: found but refused
    wrong: Counter[int] = field(default_factory=Counter)
    delays_s: dict[str, tuple[int, float]] = field(default_factory=dict)  # the day, and the delay
    calls: Counter[tuple[UpstreamName, int]] = field(default_factory=Counter)
    stale_minutes: Counter[int] = field(default_factory=Counter)
    silent_minutes: Counter[int] = field(default_factory=Counter)


class MonthService(Protocol):
    """What the comparison needs from each service."""

    async def restart(self) -> None: ...
    async def wipe(self) -> None: ...
    def visit(self) -> None: ...
    async def is_silent(self) -> bool: ...
    async def price_ages(self) -> Mapping[str, int | None]: ...
    async def recorded(self) -> Mapping[str, tuple[int, ReferenceSwap]]: ...
    async def refused(self) -> Collection[str]: ...


class OurService:
    """The real object and tasks, process after process in one directory."""

    lookup_share = 0.0  # of Hiro's calls, for the look-ups of a site

    def __init__(self, simulator: Simulator, directory: Path, db: Database, kv: KV) -> None:
        self._simulator = simulator
        self._directory = directory
        self._db, self._kv = db, kv
        self._runtime: Runtime | None = None
        self.client: SchedulerClient | None = None  # None while the process is being replaced
        self._opened_at = 0

    async def open(self) -> None:
        settings, clock = Settings(), self._simulator.clock
        assert isinstance(clock, VirtualClock)
        campaign = self._simulator.chain.campaign
        rules = Rules(built_in(), campaign.start_s, campaign.end_s)
        share = REQUEST_SHARE + self.lookup_share
        # Its headers have no monthly limit here: with look-ups, the plan is one all the same.
        hiro = Quota(second=20, minute=500, month=150_000, request_share=share, is_cap=self.lookup_share > 0)
        tenero = Quota(minute=TENERO_PLAN.minute, month=TENERO_PLAN.month)
        upstreams = {"hiro": hiro_upstream(HIRO_URL, "key", hiro), "tenero": tenero_upstream(TENERO_URL, None, tenero)}
        tasks = (refresh_prices_task(settings), *follow_network_tasks(settings, rules), sweep_task(settings, rules))
        platform = Platform(
            clock=clock,
            fetch=SimulatedFetch(self._simulator, latency_s=LATENCY_S),
            logger=NullLogger(),
            db=self._db,
            kv=self._kv,
            stub=lambda name: namespace.get_by_name(name),  # noqa: PLW0108 - it is made below
            random=Random(3).random,
        )
        parts = Parts(lambda _: tasks, lambda _: competition_jobs(rules), lambda _: upstreams)
        env = build(platform, settings, parts).env
        path = make_objects_file(self._directory)
        self._runtime = Runtime(path, clock=clock, logger=NullLogger(), env=env, idle_s=None)
        namespace = self._runtime.namespace("SCHEDULER", SchedulerDO)
        await self._runtime.open()
        await namespace.get_by_name("v1").arm()
        self.client = SchedulerClient(namespace.get_by_name("v1"))
        self._opened_at = clock.now()

    async def close(self) -> None:
        runtime, self._runtime, self.client = self._runtime, None, None
        if runtime is not None:
            await runtime.close()

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def wipe(self) -> None:
        """Delete the object's storage, but keep the databases, as in the reference."""
        await self.close()
        for name in FILES:
            (self._directory / name).unlink(missing_ok=True)
        await self.open()

    def visit(self) -> None:
        """Do nothing: Tocsin does not depend on visitors."""

    async def is_silent(self) -> bool:
        """Whether a job had no complete run for an hour while the service reports that it is ready.

        A process that is just being replaced does not answer, which does not count as silent.
        """
        if self.client is None:
            return False
        try:
            status = await self.client.status()
        except ObjectReset:
            return False
        now = self._simulator.clock.now()
        if health_of(HealthSnapshot(0.0, None, status), now).state != "ready":
            return False
        done = {name: task.last_success_at or self._opened_at for name, task in status.tasks.items()}
        newest = (done["tenero"], max(done["feed"], done["sweep"]))
        return any(now - at > SILENT_MS for at in newest)

    async def price_ages(self) -> Mapping[str, int | None]:
        now = self._simulator.clock.now()
        prices = await get_cached_token_prices(self._kv, PRICED_TOKENS)
        return {
            token: now - prices[token].fetched_at if token in prices and prices[token].price_usd else None
            for token in PRICED_TOKENS
        }

    async def recorded(self) -> Mapping[str, tuple[int, ReferenceSwap]]:
        sql = "SELECT txid, recorded_at, sender, token_in, amount_in, token_out, amount_out FROM swaps"
        rows = (await self._db.prepare(sql).all()).results
        return {
            row["txid"]: (
                row["recorded_at"],
                ReferenceSwap(
                    row["sender"], row["token_in"], int(row["amount_in"]), row["token_out"], int(row["amount_out"])
                ),
            )
            for row in rows
        }

    async def refused(self) -> Collection[str]:
        return {row["txid"] for row in (await self._db.prepare("SELECT txid FROM refusals").all()).results}


class ReferenceService:
    """The model of the reference, as a compared service."""

    def __init__(self, model: ReferenceModel, simulator: Simulator) -> None:
        self._model = model
        self._simulator = simulator
        self._opened_at = simulator.clock.now()

    async def restart(self) -> None:
        self._model.end_process()

    async def wipe(self) -> None:
        self._model.wipe()

    def visit(self) -> None:
        self._model.visit()

    async def is_silent(self) -> bool:
        """Whether a job had no useful run for an hour while its status shows no trouble."""
        return any(self._job_is_silent(job) for job in REFERENCE_JOBS)

    def _job_is_silent(self, job: ReferenceJob) -> bool:
        at = self._model.useful_at.get(job, self._opened_at)
        return self._simulator.clock.now() - at > SILENT_MS and not self._model.names_trouble(job)

    async def price_ages(self) -> Mapping[str, int | None]:
        now, prices = self._simulator.clock.now(), self._model.data.prices
        return {
            token: now - prices[token].fetched_at if token in prices and prices[token].usd else None
            for token in PRICED_TOKENS
        }

    async def recorded(self) -> Mapping[str, tuple[int, ReferenceSwap]]:
        data = self._model.data
        return {txid: (data.recorded_at[txid], swap) for txid, swap in data.swaps.items()}

    async def refused(self) -> Collection[str]:
        return self._model.data.refused


@asynccontextmanager
async def our_service(
    simulator: CountingSimulator, directory: Path, make: type[OurService] = OurService
) -> AsyncIterator[MonthService]:
    async with open_competition(directory) as db, open_kv(directory, simulator.clock) as kv:
        await register(db, simulator.chain.wallets)
        service = make(simulator, directory, db, kv)
        await service.open()
        try:
            yield service
        finally:
            await service.close()


@asynccontextmanager
async def reference_service(simulator: CountingSimulator, _directory: Path) -> AsyncIterator[MonthService]:
    chain = simulator.chain
    fetch = SimulatedFetch(simulator, latency_s=LATENCY_S)
    model = ReferenceModel(fetch, simulator.clock, chain.wallets, built_in().contracts, chain.campaign.start_s)
    running = asyncio.ensure_future(model.run())
    try:
        yield ReferenceService(model, simulator)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


SERVICES: dict[str, Callable[[CountingSimulator, Path], AbstractAsyncContextManager[MonthService]]] = {
    "Tocsin": our_service,
    "the reference": reference_service,
}


async def live_through(
    name: str,
    directory: Path,
    incidents: Sequence[Incident],
    *,
    days: float,
    seed: int,
    wallets: int = WALLETS,
    traffic: Traffic = TRAFFIC,
    last_ms: int = LAST_MS,
    make_simulator: Callable[[Chain, VirtualClock], CountingSimulator] = CountingSimulator,
) -> MonthOutcome:
    """Run one service for this many days. Swaps of the last hours are not compared."""
    clock = VirtualClock()
    start_ms = clock.now()
    chain = Chain(seed=seed, start_ms=start_ms, wallets=wallets)
    start_traffic(chain, traffic)
    simulator = make_simulator(chain, clock)
    incidents = [each for each in incidents if each.hour < days * 24]
    prepare(simulator, incidents, seed, start_ms)
    outcome = MonthOutcome(name, int(days + 0.999))
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(SERVICES[name](simulator, directory))
        director = asyncio.ensure_future(_direct(service, simulator, incidents))
        await _watch(service, clock, incidents, outcome, days)
        await director
        simulator.advance()
        await _compare(service, chain, outcome, start_ms + int(days * DAY_MS) - last_ms)
    outcome.calls = simulator.calls
    return outcome


async def _direct(service: MonthService, simulator: Simulator, incidents: Sequence[Incident]) -> None:
    """Start and end the incidents at their time."""
    start_ms = simulator.chain.start_ms
    agenda: list[tuple[int, int, Change | ProcessFault | None]] = []
    for order, incident in enumerate(incidents):
        first, last = incident.at_ms(start_ms)
        agenda += [(first, order, incident.begin), (last, order, incident.end)]
        if incident.process is not None:
            agenda.append((first, order, incident.process))
    for at, _, action in sorted(agenda, key=lambda each: each[:2]):
        if action is None:
            continue
        await simulator.clock.sleep(max(0, at - simulator.clock.now()) / 1000)
        if action == "wipe":
            await service.wipe()
        elif action == "restart":
            await service.restart()
        elif callable(action):
            action(simulator)


async def _watch(
    service: MonthService, clock: VirtualClock, incidents: Sequence[Incident], outcome: MonthOutcome, days: float
) -> None:
    """Check every five minutes. Somebody opens a page every ten, except during incidents without visitors."""
    start_ms = clock.now()
    deserted = [each.at_ms(start_ms) for each in incidents if not each.visited]
    for look in range(int(days * 24 * 60 / LOOK_MINUTES)):
        now = start_ms + look * LOOK_MINUTES * MINUTE_MS
        await clock.sleep((now - clock.now()) / 1000)
        day = (now - start_ms) // DAY_MS
        if look % VISIT_LOOKS == 0 and not any(first <= now < last for first, last in deserted):
            service.visit()
        outcome.silent_minutes[day] += LOOK_MINUTES * await service.is_silent()
        if now - start_ms >= PRICED_FROM_MS:
            ages = await service.price_ages()
            is_stale = any(age is None or age > STALE_MS for age in ages.values())
            outcome.stale_minutes[day] += LOOK_MINUTES * is_stale
    await clock.sleep((start_ms + int(days * DAY_MS) - clock.now()) / 1000)


async def _compare(service: MonthService, chain: Chain, outcome: MonthOutcome, until_ms: int) -> None:
    """Compare with the truth: what is missing, what differs, and how late the others were."""
    true = {swap.txid: swap for swap in chain.truth()}
    recorded, refused = await service.recorded(), await service.refused()
    for txid, swap in true.items():
        block = chain.transactions[txid].block
        assert block is not None
        mined_ms = block.time_s * 1000
        if mined_ms >= until_ms:
            continue
        day = (mined_ms - chain.start_ms) // DAY_MS
        outcome.swaps += 1
        if txid not in recorded:
            outcome.missed[day] += 1
            outcome.refused[day] += txid in refused
            continue
        at, row = recorded[txid]
        if row != ReferenceSwap(swap.sender, swap.token_in, swap.amount_in, swap.token_out, swap.amount_out):
            outcome.wrong[day] += 1
        if at >= mined_ms:  # else a reorg has moved it to another block since
            outcome.delays_s[txid] = day, (at - mined_ms) / 1000
    for txid in recorded.keys() - true.keys():
        at_ms = chain.transactions[txid].received_ms
        if at_ms < until_ms:
            outcome.wrong[(at_ms - chain.start_ms) // DAY_MS] += 1
