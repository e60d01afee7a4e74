"""The month with the look-ups of a site: how many are answered from memory, and whether tasks and windows hold."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import accumulate
from math import pi, sin
from pathlib import Path
from random import Random

from month_incidents import DAY_MS, month_of_incidents
from month_services import (
    SERVICES,
    CountingSimulator,
    MonthOutcome,
    MonthService,
    OurService,
    live_through,
    our_service,
)

from holdfast.errors import ObjectReset
from holdfast.testing.virtual_time import VirtualClock
from stacks_simulator.addresses import address_of
from stacks_simulator.chain import Chain
from stacks_simulator.http_messages import Delivery, SimulatedRequest, UpstreamName
from tocsin.upstream.budget import REQUEST_SHARE
from tocsin.upstream.lookups import Lookup

NAME = "Tocsin with look-ups"
AGENTS = 1_100
KINDS = (  # path, and for how many seconds an answer is fresh
    ("/v1/addresses/stacks/{}", 6 * 3600),
    ("/extended/v1/tokens/nft/holdings?principal={}", 6 * 3600),
    ("/extended/v1/address/{}/balances", 60),
)
SHARE = 0.5
WINDOWS = {1_000: 20, 60_000: 500}  # by length in ms: the limits of the plan


class VisitedSimulator(CountingSimulator):
    """Notes the most calls in any second and minute, and what the site got from Tocsin, by day."""

    def __init__(self, chain: Chain, clock: VirtualClock, per_day: int, seed: int) -> None:
        super().__init__(chain, clock)
        self.per_day, self.seed = per_day, seed
        self.most = dict.fromkeys(WINDOWS, 0)
        self.outcomes: Counter[tuple[int, str]] = Counter()
        self.stale_s: dict[int, list[int]] = {60: [], 6 * 3600: []}  # ages, by how long an answer is fresh
        self.stretched: Counter[str] = Counter()
        self._newest: dict[int, deque[int]] = {length_ms: deque() for length_ms in WINDOWS}

    def handle(self, upstream: UpstreamName, request: SimulatedRequest) -> Delivery:
        now = self.clock.now()
        for length_ms, newest in self._newest.items() if upstream == "hiro" else ():
            newest.append(now)
            while now - newest[0] >= length_ms:
                newest.popleft()
            self.most[length_ms] = max(self.most[length_ms], len(newest))
        return super().handle(upstream, request)


class VisitedService(OurService):
    """Tocsin, and the stretched cadences at each look at its status."""

    lookup_share = SHARE

    async def is_silent(self) -> bool:
        assert isinstance(self._simulator, VisitedSimulator)
        if self.client is not None:
            tasks = (await self.client.status()).tasks
            stretched = (name for name, task in tasks.items() if task.effective_cadence_ms > task.cadence_ms)
            self._simulator.stretched.update(stretched)
        return await super().is_silent()


class Site:
    """Views pages of agents, most of them of a few (Zipf), more by day than by night; each asks three questions."""

    def __init__(self, service: OurService, simulator: VisitedSimulator) -> None:
        self._service, self._simulator = service, simulator
        self._random = Random(f"{simulator.seed}:visits")
        self._agents = [address_of(f"visited agent {number}") for number in range(AGENTS)]
        self._weights = [*accumulate(1 / (number + 1) for number in range(AGENTS))]
        self._asking: set[asyncio.Task[None]] = set()

    async def live(self) -> None:
        clock, views_per_ms = self._simulator.clock, self._simulator.per_day / len(KINDS) / DAY_MS
        while True:
            by_day = 1 + 0.7 * sin(2 * pi * clock.now() / DAY_MS)
            await clock.sleep(self._random.expovariate(views_per_ms * by_day) / 1000)
            [agent] = self._random.choices(self._agents, cum_weights=self._weights)
            for path, fresh_s in KINDS:
                asking = asyncio.create_task(self._ask(path.format(agent), path, fresh_s))
                self._asking.add(asking)
                asking.add_done_callback(self._asking.discard)

    async def _ask(self, target: str, pattern: str, fresh_s: int) -> None:
        simulator, client = self._simulator, self._service.client
        day, how = (simulator.clock.now() - simulator.chain.start_ms) // DAY_MS, "no process"
        if client is not None:
            asked = Lookup("hiro", target, None, pattern, fresh_s, "site", SHARE / (SHARE + REQUEST_SHARE))
            try:
                answer = await client.look_up(asked)
            except ObjectReset:
                pass
            else:
                how = answer.how
                simulator.stale_s[fresh_s] += [answer.age_s] if how == "stale" else []
        simulator.outcomes[day, how] += 1


@asynccontextmanager
async def visited_service(simulator: CountingSimulator, directory: Path) -> AsyncIterator[MonthService]:
    async with our_service(simulator, directory, VisitedService) as service:
        assert isinstance(simulator, VisitedSimulator)
        assert isinstance(service, OurService)
        living = asyncio.create_task(Site(service, simulator).live())
        try:
            yield service
        finally:
            living.cancel()


async def with_lookups(directory: Path, *, days: float, seed: int, per_day: int) -> list[tuple[str, str]]:
    """The rows of the table."""
    made: list[VisitedSimulator] = []

    def make(chain: Chain, clock: VirtualClock) -> VisitedSimulator:
        made.append(VisitedSimulator(chain, clock, per_day, seed))
        return made[0]

    SERVICES[NAME] = visited_service
    incidents = month_of_incidents()
    outcome = await live_through(NAME, directory, incidents, days=days, seed=seed, make_simulator=make)
    return report(outcome, made[0], days)


def report(outcome: MonthOutcome, simulator: VisitedSimulator, days: float) -> list[tuple[str, str]]:
    def of(how: str, first_day: int = 0) -> int:
        return sum(count for (day, each), count in simulator.outcomes.items() if each == how and day >= first_day)

    def ages(fresh_s: int) -> str:
        stale = sorted(simulator.stale_s[fresh_s]) or [0]
        return f"{stale[len(stale) // 2] // 60} min, {stale[len(stale) * 95 // 100] // 60} min"

    total = simulator.outcomes.total()
    later = sum(count for (day, _), count in simulator.outcomes.items() if day >= 1)
    calls = sum(count for (upstream, _), count in outcome.calls.items() if upstream == "hiro")
    looks, delays = days * 288, sorted(delay for _, delay in outcome.delays_s.values()) or [0.0]
    stretched = ", ".join(f"{name} {count / looks:.1%}" for name, count in simulator.stretched.items())
    parts = [(how, f"{of(how):,} ({of(how) / total:.1%})") for how in ("hit", "confirmed", "miss", "stale", "failed")]
    return [
        ("look-ups", f"{total:,}, of them {of('no process'):,} without a process"),
        *parts,
        ("refused", f"{of('refused') / total:.2%}; after the first day {of('refused', 1) / max(1, later):.2%}"),
        ("stale balances: median age, p95", ages(60)),
        ("stale names and identities: median age, p95", ages(6 * 3600)),
        ("calls to Hiro", f"{calls:,}: {calls / days * 30:,.0f} in 30 days"),
        ("most calls in a second, a minute", f"{simulator.most[1_000]} of 20, {simulator.most[60_000]} of 500"),
        ("swaps missed, wrong", f"{outcome.missed.total()}, {outcome.wrong.total()} of {outcome.swaps:,}"),
        ("discovery delay: p95, longest", f"{delays[int(len(delays) * 0.95)]:.0f} s, {delays[-1]:.0f} s"),
        ("minutes of silent death", f"{outcome.silent_minutes.total()}"),
        ("time with stretched cadences", stretched or "none"),
    ]  # fmt: skip
