"""The simulator on loopback, under uvicorn: inside a test, or as the command `tocsin simulate`."""

import asyncio
import signal
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
from tocsin.simulator.network_traffic import NetworkTraffic
from tocsin.simulator.rate_limits import UNLIMITED, HiroRateLimit, TeneroRateLimit
from tocsin.simulator.simulator import Simulator
from tocsin.simulator.traffic import Traffic, start_traffic
from tocsin.simulator.truth import Campaign

HOUR_MS = 3_600_000
TRAFFIC = Traffic()


@dataclass(frozen=True, slots=True)
class SimulatorAddress:
    """The URLs of a running simulator."""

    root: str

    @property
    def hiro(self) -> str:
        return f"{self.root}/hiro"

    @property
    def tenero(self) -> str:
        return f"{self.root}/tenero"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorOptions:
    """The options of a stand-alone simulator."""

    host: str = "127.0.0.1"
    port: int = 8790
    seed: int = 1
    speed: float = 1.0
    wallets: int = 430
    history_hours: float = 6.0  # how long before its start the chain begins
    traffic: Traffic = TRAFFIC  # from the beginning of the chain
    more_traffic: Traffic | None = None  # in addition, from the start of the simulator
    network: float = 120.0  # other transactions per hour, from the start; few, as the chain never shrinks
    campaign_start_s: int | None = None  # None: the start of the real competition
    limits: bool = True
    bad_times: bool = False
    began_at: int | None = None  # when it was first started (unix ms): gives the same chain again


def build_simulator(options: SimulatorOptions, clock: Clock) -> Simulator:
    """Build a simulator whose chain has a history and follows the clock from now on."""
    now_ms = clock.now() if options.began_at is None else options.began_at
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
    if options.network > 0:
        NetworkTraffic(chain, options.network, "network").schedule_next()
    return Simulator(
        chain,
        clock,
        speed=options.speed,
        hiro_rate_limit=HiroRateLimit() if options.limits else HiroRateLimit(UNLIMITED, UNLIMITED),
        tenero_rate_limit=TeneroRateLimit() if options.limits else TeneroRateLimit(UNLIMITED, UNLIMITED),
        faults=FaultInjector(options.seed, BadTimes(options.seed) if options.bad_times else None),
        since_ms=now_ms,
    )


@asynccontextmanager
async def serving(
    simulator: Simulator, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[SimulatorAddress]:
    """Serve while the block runs. Port 0 picks a free port."""
    closing = asyncio.Event()
    server = HttpServer(host, port)
    # The simulator sends its own Date header.
    await server.start(simulator_app(simulator, closing), http=_AbortableProtocol, date_header=False)
    try:
        yield SimulatorAddress(server.url)
    finally:
        closing.set()
        await server.stop()


async def run_simulator(options: SimulatorOptions, clock: Clock) -> None:
    """Serve until SIGINT or SIGTERM. The first lines of the output are the URLs."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # A background job starts with SIGINT ignored, and then Python raises no KeyboardInterrupt.
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
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
        await stopped.wait()


class _AbortableProtocol(HttpToolsProtocol):
    """Gives the app a function that cuts the connection."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"][CUT_CONNECTION] = self.transport.abort
