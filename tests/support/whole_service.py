"""The whole service in virtual time: the real object, tasks and stores against the simulator, process after process."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import KV, Database
from holdfast_testing.stores import open_kv
from stacks_simulator.simulator import Simulator
from support.competition import as_rows, chain_of, register
from support.local_store import open_competition
from support.scheduler import Scheduler, scheduler
from support.simulated_fetch import HIRO_URL, TENERO_URL, SimulatedFetch
from tocsin.fetch import Fetch, FetchResponse
from tocsin.prices.refresh import refresh_prices_task
from tocsin.rounds.actions import round_jobs
from tocsin.rounds.task import feed_runs, rounds_task
from tocsin.scheduler.config import AlertTarget
from tocsin.scheduler.health import HealthSnapshot, health_of
from tocsin.scheduler.types import Health, RunFilter, RunRecord
from tocsin.settings import Settings
from tocsin.swaps.feed import follow_network_tasks
from tocsin.swaps.rules import Rules, built_in
from tocsin.swaps.submit import competition_jobs
from tocsin.swaps.sweep import sweep_task
from tocsin.upstream.budget import Quota
from tocsin.upstream.hiro import hiro_upstream
from tocsin.upstream.tenero import tenero_upstream

SWEEP_S = 900
PRICES_S = 300
ALERT_URL = "https://alerts.test/hook"
EVENTS = {True: "ready", False: "not_ready"}
SWEEP_ALONE = Settings(feed_enabled=False)
ROOMY = Quota(second=10_000, minute=100_000, month=10_000_000)


@dataclass
class Throttle:
    """Limits an upstream to this many calls per window of time, then answers 429 with a correct Retry-After."""

    fetch: Fetch
    clock: VirtualClock
    calls: int
    window_s: int
    base: str = HIRO_URL
    answered: list[int] = field(default_factory=list)  # when

    async def __call__(self, url: str, **options: Any) -> FetchResponse:
        if not url.startswith(self.base):
            return await self.fetch(url, **options)
        now = self.clock.now()
        started = now - now % (self.window_s * 1000)
        if sum(at >= started for at in self.answered) >= self.calls:
            left_s = -(-(started + self.window_s * 1000 - now) // 1000)
            return FetchResponse(429, {"retry-after": str(left_s)}, b"too many")
        self.answered.append(now)
        return await self.fetch(url, **options)


@dataclass
class Spy:
    """Records when each call was made, and may change the answers of an upstream."""

    fetch: Fetch
    clock: VirtualClock
    calls: list[tuple[int, str]] = field(default_factory=list)
    events_hidden: bool = False

    async def __call__(self, url: str, **options: Any) -> FetchResponse:
        self.calls.append((self.clock.now(), url))
        answer = await self.fetch(url, **options)
        if self.events_hidden and "tx/multiple" in url and answer.status == 200:
            shown = json.loads(answer.body)
            for each in shown.values():
                if each.get("found"):
                    each["result"] |= {"event_count": 0, "events": []}
            return FetchResponse(200, answer.headers, json.dumps(shown).encode())
        return answer

    def of(self, base: str) -> list[int]:
        return [at for at, url in self.calls if url.startswith(base)]


@dataclass
class Webhook:
    """Receives the alerts; everything else goes on to the upstreams."""

    fetch: Fetch
    alerts: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, url: str, **options: Any) -> FetchResponse:
        if url != ALERT_URL:
            return await self.fetch(url, **options)
        self.alerts.append(json.loads(options["body"]))
        return FetchResponse(200, {}, b"")


@dataclass
class Service:
    """One process of the service."""

    scheduler: Scheduler
    db: Database
    kv: KV
    simulator: Simulator
    rules: Rules
    webhook: Webhook

    async def health(self) -> Health:
        status = await self.scheduler.client().status()
        return health_of(HealthSnapshot(0.0, None, status), self.scheduler.clock.now())

    async def runs(self, task: str) -> list[RunRecord]:
        """Return the runs that ended, oldest first."""
        runs = (await self.scheduler.client().runs(RunFilter(task, 500))).runs
        return [run for run in reversed(runs) if run.outcome != "running"]

    async def missing(self) -> int:
        """Return how many true swaps are not recorded. No swap that is not true may be recorded."""
        found = {row["txid"] for row in (await self.db.prepare("SELECT txid FROM swaps").all()).results}
        true = {row["txid"] for row in as_rows(self.simulator.chain.truth())}
        assert found <= true
        return len(true - found)

    async def until_not_ready(self, within_s: int, *, alerted: bool = True) -> int:
        """Return the seconds until the service reports that it is not ready and has sent the alert."""
        return await self._until(False, within_s, alerted)

    async def until_ready(self, within_s: int, *, alerted: bool = True) -> int:
        return await self._until(True, within_s, alerted)

    async def _until(self, ready: bool, within_s: int, alerted: bool) -> int:
        for waited_s in range(0, within_s + 1, 10):
            told = self.webhook.alerts[-1]["event"] if self.webhook.alerts else "ready"
            if (await self.health()).ready is ready and (not alerted or told == EVENTS[ready]):
                return waited_s
            await asyncio.sleep(10)
        raise AssertionError(f"not {EVENTS[ready]} within {within_s} s: {self.webhook.alerts}")


@asynccontextmanager
async def service(
    directory: Path,
    simulator: Simulator | None = None,
    *,
    fetch: Fetch | None = None,
    settings: Settings | None = None,
    quotas: Mapping[str, Quota] | None = None,
    wallets: int = 3,
    arm: bool = True,
) -> AsyncIterator[Service]:
    """Open one process; open it again with the same simulator for the next. `SWEEP_ALONE` leaves the feed out."""
    simulator = simulator or chain_of(wallets)
    clock = simulator.clock
    assert isinstance(clock, VirtualClock)
    settings, quotas = settings or Settings(), quotas or {}
    campaign = simulator.chain.campaign
    rules = Rules(built_in(), campaign.start_s, campaign.end_s)
    upstreams = {
        "hiro": hiro_upstream(HIRO_URL, "key", quotas.get("hiro", ROOMY)),
        "tenero": tenero_upstream(TENERO_URL, "key", quotas.get("tenero", ROOMY)),
    }
    webhook = Webhook(fetch or SimulatedFetch(simulator))
    async with open_competition(directory) as db, open_kv(directory, clock) as kv:
        if not (await db.prepare("SELECT 1 FROM agents LIMIT 1").all()).results:
            await register(db, simulator.chain.wallets)
        async with scheduler(
            directory,
            refresh_prices_task(settings),
            *follow_network_tasks(settings, rules),
            sweep_task(settings, rules),
            rounds_task(settings, rules),
            clock=clock,
            fetch=webhook,
            upstreams=upstreams,
            request_jobs={**competition_jobs(rules), **round_jobs(rules, feed_runs=feed_runs(settings))},
            db=db,
            kv=kv,
            arm=arm,
            alert_target=AlertTarget(ALERT_URL),
        ) as made:
            yield Service(made, db, kv, simulator, rules, webhook)
