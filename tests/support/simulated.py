"""Simulators and chains for tests, and helpers to send requests to them."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from holdfast.testing.virtual_time import START_MS
from holdfast.types import Clock
from stacks_simulator.chain import Chain
from stacks_simulator.http_messages import SimulatedReply, SimulatedRequest, UpstreamName
from stacks_simulator.rate_limits import UNLIMITED, HiroRateLimit, TeneroRateLimit
from stacks_simulator.simulator import Simulator
from stacks_simulator.traffic import Traffic, start_traffic


class HandClock:
    """A clock that a test without an event loop sets by hand."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def now(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)


def quiet_simulator(clock: Clock | None = None, *, seed: int = 1, wallets: int = 3) -> Simulator:
    """A simulator without traffic and limits: only the test's own commands change the chain."""
    clock = clock or HandClock()
    chain = Chain(seed=seed, start_ms=clock.now(), wallets=wallets)
    return Simulator(
        chain,
        clock,
        hiro_rate_limit=HiroRateLimit(UNLIMITED, UNLIMITED),
        tenero_rate_limit=TeneroRateLimit(UNLIMITED, UNLIMITED),
    )


def lively_chain(*, seed: int = 1, wallets: int = 40, hours: float = 2.0, start_ms: int = START_MS) -> Chain:
    """Return a chain after hours of traffic of every kind."""
    chain = Chain(seed=seed, start_ms=start_ms, wallets=wallets)
    start_traffic(chain, Traffic(swaps=400, floods=2, reorgs=4))
    chain.advance(start_ms + int(hours * 3_600_000))
    return chain


def ask(
    simulator: Simulator, target: str, headers: Mapping[str, str] | None = None, upstream: UpstreamName = "hiro"
) -> SimulatedReply:
    """The reply to a GET request."""
    return simulator.handle(upstream, SimulatedRequest.get(target, headers)).reply


def ask_json(simulator: Simulator, target: str, upstream: UpstreamName = "hiro") -> Any:
    """The JSON body of the reply to a GET request that must succeed."""
    reply = ask(simulator, target, upstream=upstream)
    assert reply.status == 200, reply
    return json.loads(reply.body)


def walk(simulator: Simulator, target: str, direction: str = "next", cursor: str | None = None) -> list[Any]:
    """All pages of a list of Hiro, from a cursor on in one direction."""
    pages: list[Any] = []
    while not pages or cursor is not None:
        pages.append(ask_json(simulator, target if cursor is None else f"{target}&cursor={quote(cursor)}"))
        cursor = pages[-1]["cursor"][direction]
    return pages
