"""A month of submissions in virtual time: greedy and honest clients and the scheduler's own calls, on one budget.

Hiro knows none of the transactions, so even the honest clients get nothing back. A greedy client submits as often as
it can. While it is refused it tries at most once a minute, which gains as much as trying every second.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random

from holdfast.testing.virtual_time import VirtualClock
from support.scripted_fetch import Request, response
from support.upstreams import Wired
from tocsin.errors import ShareUsed
from tocsin.fetch import FetchResponse
from tocsin.scheduler.task import ContextBindings, WorkContext
from tocsin.swaps.submit import NoFact, SubmissionLane
from tocsin.upstream.answer import Limited, NoAnswer, Ok
from tocsin.upstream.budget import Quota
from tocsin.upstream.hiro import hiro_upstream
from tocsin.upstream.limiter import task_session
from tocsin.upstream.windows import Lane, span_of
from tocsin.web.limits import client_networks

PLAN = Quota(second=20, minute=500, month=150_000)
MAY = span_of(1_778_700_600_000)
SWEEP_S = 900
SWEEP_CALLS = 40
HONEST_CLIENTS = 30
HONEST_A_DAY = 144
DAY_S = 86_400
BURST = 60  # posts that the web application accepts from one client at once
LOOK_S = 60.0


@dataclass
class LaneFigures:
    """What happened."""

    honest: int = 0
    honest_refused: int = 0
    greedy_asked: int = 0  # submissions that were looked up
    task_calls: int = 0
    task_refused: int = 0
    request_calls: int = 0
    left_min: float = field(default=float("inf"))  # calls of the request lane when an honest client submitted


class LaneWorld:
    """One object's lane and budget. Without `shares` every client may use all of it, like an operator."""

    def __init__(self, *, shares: bool = True) -> None:
        self.clock = VirtualClock(MAY.starts_at)
        upstream = hiro_upstream("https://hiro.test", "key")
        self.wired = Wired(upstream, hiro_knows_nothing, PLAN, latency_s=0.2, clock=self.clock)
        self.hiro = self.wired.hiro
        self.lane = SubmissionLane()
        self.figures = LaneFigures()
        self._shares = shares
        self._numbers = count(1)

    def new_txid(self) -> str:
        return f"0x{next(self._numbers):064x}"

    async def submit(self, host: str) -> None:
        """Submit; raises the error with which a submission is refused."""
        bindings = ContextBindings(self.clock, {"hiro": self.hiro})
        context = WorkContext(bindings, self.wired.request())
        client = client_networks(host) if self._shares else ()
        with suppress(NoFact):
            await self.lane.find(context, self.new_txid(), client)

    async def run(self, greedy: Sequence[str], days: float) -> LaneFigures:
        tasks = [asyncio.create_task(self._submit_greedily(host)) for host in greedy]
        tasks += [asyncio.create_task(self._submit_honestly(days)), asyncio.create_task(self._sweep())]
        await asyncio.sleep(days * DAY_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        figures = self.figures
        figures.request_calls = len(self.wired.fetch.requests) - figures.task_calls
        return figures

    async def _submit_greedily(self, host: str) -> None:
        await asyncio.gather(*[self._attempt(host) for _ in range(BURST)])
        while True:
            await asyncio.sleep(max(1.0, min(LOOK_S, await self._attempt(host))))

    async def _attempt(self, host: str) -> float:
        """Try a submission; return how long to wait."""
        try:
            await self.submit(host)
        except ShareUsed as refusal:
            return refusal.wait_s
        except NoAnswer as refusal:
            answer = refusal.answer
            return (answer.until - self.clock.now()) / 1000 if isinstance(answer, Limited) else LOOK_S
        self.figures.greedy_asked += 1
        return 0.0

    async def _submit_honestly(self, days: float) -> None:
        random = Random(9)
        moments = sorted(random.uniform(0, days * DAY_S) for _ in range(int(HONEST_A_DAY * days)))
        for at_s in moments:
            await asyncio.sleep(max(0.0, at_s - self.clock.monotonic()))
            figures = self.figures
            figures.left_min = min(figures.left_min, self.hiro.client.limiter.calls_left(Lane.REQUEST))
            figures.honest += 1
            try:
                await self.submit(f"198.51.100.{random.randrange(HONEST_CLIENTS)}")
            except (ShareUsed, NoAnswer):
                figures.honest_refused += 1

    async def _sweep(self) -> None:
        while True:
            session = task_session(self.wired.log)
            for _ in range(SWEEP_CALLS):
                self.figures.task_calls += 1
                answer = await self.hiro.transactions_with_events([self.new_txid()], session)
                self.figures.task_refused += not isinstance(answer, Ok)
            await asyncio.sleep(SWEEP_S - self.clock.monotonic() % SWEEP_S)


def hiro_knows_nothing(request: Request) -> FetchResponse:
    """Hiro knows none of them."""
    txids = request.url.rpartition("tx_id=")[2].split(",")
    return response(json.dumps({txid: {"found": False, "result": {"tx_id": txid}} for txid in txids}))


def addresses(kind: str) -> list[str]:
    """Return the addresses of greedy clients."""
    return {
        "none": [],
        "one address": ["192.0.2.1"],
        "ten addresses": [f"192.0.2.{number}" for number in range(10)],
        "a hundred addresses": [f"192.0.2.{number}" for number in range(100)],
        "a /48": [f"2001:db8:0:{number:x}::1" for number in range(100)],
    }[kind]
