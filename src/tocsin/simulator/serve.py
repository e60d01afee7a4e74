"""The simulator on loopback, under uvicorn: inside a test or a demo, or as a command of its own."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tocsin.bindings import Clock
from tocsin.platform.local.http.http_server import HttpServer
from tocsin.simulator.chain import Chain
from tocsin.simulator.faults import BadTimes, FaultInjector
from tocsin.simulator.http_app import CUT_CONNECTION, simulator_app
from tocsin.simulator.rate_limits import UNLIMITED, HiroRateLimit, TeneroRateLimit
from tocsin.simulator.simulator import Simulator
from tocsin.simulator.traffic import Traffic, start_traffic
from tocsin.simulator.truth import Campaign

HOUR_MS = 3_600_000
TRAFFIC = Traffic()


@dataclass(frozen=True, slots=True)
class SimulatorAddress:
    """Where a running simulator is reached."""

    root: str

    @property
    def hiro(self) -> str:
        return f"{self.root}/hiro"

    @property
    def tenero(self) -> str:
        return f"{self.root}/tenero"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorOptions:
    """What a stand-alone simulator is made of."""

    host: str = "127.0.0.1"
    port: int = 8790
    seed: int = 1
    speed: float = 1.0
    wallets: int = 430
    history_hours: float = 6.0  # that lie behind the chain when it opens
    traffic: Traffic = TRAFFIC  # from its first hour on
    more_traffic: Traffic | None = None  # on top of it, from its opening on
    campaign_start_s: int | None = None  # None: the competition's own start
    limits: bool = True
    bad_times: bool = False


def build_simulator(options: SimulatorOptions, clock: Clock) -> Simulator:
    """A chain with a past, living on at the clock's time."""
    now_ms = clock.now()
    start_s = options.campaign_start_s
    chain = Chain(
        seed=options.seed,
        start_ms=now_ms - int(options.history_hours * HOUR_MS),
        wallets=options.wallets,
        campaign=Campaign() if start_s is None else Campaign(start_s),
    )
    start_traffic(chain, options.traffic)
    chain.advance(now_ms)
    if options.more_traffic is not None:
        start_traffic(chain, options.more_traffic, "more traffic")
    open_gates = not options.limits
    return Simulator(
        chain,
        clock,
        speed=options.speed,
        hiro_rate_limit=HiroRateLimit(UNLIMITED, UNLIMITED) if open_gates else HiroRateLimit(),
        tenero_rate_limit=TeneroRateLimit(UNLIMITED, UNLIMITED) if open_gates else TeneroRateLimit(),
        faults=FaultInjector(options.seed, BadTimes(options.seed) if options.bad_times else None),
    )


@asynccontextmanager
async def serving(
    simulator: Simulator, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[SimulatorAddress]:
    """Serve while the block runs. Port 0 picks a free one."""
    closing = asyncio.Event()
    server = HttpServer(host, port)
    # The simulated edge has headers of its own.
    await server.start(simulator_app(simulator, closing), http=_AbortableProtocol, date_header=False)
    try:
        yield SimulatorAddress(server.url)
    finally:
        closing.set()
        await server.stop()


async def run_simulator(options: SimulatorOptions, clock: Clock) -> None:
    """Serve until the process is told to stop; the first lines say where."""
    simulator = build_simulator(options, clock)
    async with serving(simulator, options.host, options.port) as address:
        lines = {
            "HIRO_API_URL": address.hiro,
            "TENERO_API_URL": address.tenero,
            "control": f"{address.root}/_control",
            "truth": f"{address.root}/_truth",
            "agents": f"{address.root}/_agents",
        }
        sys.stdout.write("".join(f"{name}={url}\n" for name, url in lines.items()))
        sys.stdout.flush()
        await asyncio.Event().wait()


class _AbortableProtocol(HttpToolsProtocol):
    """Lends the app its connection, so that it can be cut."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"][CUT_CONNECTION] = self.transport.abort
