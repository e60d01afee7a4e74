"""The whole service in virtual time: the real object, tasks and stores against the simulator, process after process."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.testing.virtual_time import VirtualClock
from stacks_simulator.simulator import Simulator
from support.competition import ROOMY, as_rows, chain_of, register
from support.local_store import open_competition
from support.simulated_fetch import HIRO_URL, SimulatedFetch
from support.world import Tocsin, settings_of, tocsin_in
from tocsin.fetch import Fetch, FetchResponse
from tocsin.scheduler.health import HealthSnapshot, health_of
from tocsin.scheduler.types import Health, RunFilter, RunRecord
from tocsin.upstream.budget import Quota

SWEEP_S = 900
PRICES_S = 300
ALERT_URL = "https://alerts.test/hook"
EVENTS = {True: "ready", False: "not_ready"}


def clock_of(simulator: Simulator) -> VirtualClock:
    clock = simulator.clock
    assert isinstance(clock, VirtualClock)
    return clock


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
class Service(Tocsin):
    """One process of the service."""

    webhook: Webhook

    async def health(self) -> Health:
        status = await self.client().status()
        return health_of(HealthSnapshot(0.0, None, status), self.clock.now())

    async def runs(self, task: str) -> list[RunRecord]:
        """Return the runs that ended, oldest first."""
        runs = (await self.client().runs(RunFilter(task, 500))).runs
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
    quotas: Mapping[str, Quota] | None = None,
    wallets: int = 3,
    arm: bool = True,
    **settings: Any,
) -> AsyncIterator[Service]:
    """Open one process; open it again with the same simulator for the next. `settings` are those of `tocsin_in`."""
    simulator, quotas = simulator or chain_of(wallets), quotas or {}
    tenero = quotas.get("tenero", ROOMY)
    webhook = Webhook(fetch or SimulatedFetch(simulator))
    usual = {
        **settings_of(simulator, quotas.get("hiro", ROOMY)),
        "hiro_api_key": "key",
        "tenero_plan_minute": tenero.minute,
        "tenero_plan_month": tenero.month,
        "tenero_plan_cap": tenero.is_cap,
        "alert_url": ALERT_URL,
    }
    async with open_competition(directory) as db:
        if not (await db.prepare("SELECT 1 FROM agents LIMIT 1").all()).results:
            await register(db, simulator.chain.wallets)
        async with tocsin_in(
            directory, simulator=simulator, fetch=lambda _: webhook, db=db, arm=arm, **{**usual, **settings}
        ) as made:
            yield made.extended(Service, webhook=webhook)
