"""The simulator on loopback, under uvicorn: inside a test, or as a command that runs until it is stopped."""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.errors import StartError
from holdfast.types import Clock
from stacks_simulator.chain import Chain
from stacks_simulator.faults import BadTimes, FaultInjector
from stacks_simulator.http_app import CUT_CONNECTION, simulator_app
from stacks_simulator.rate_limits import UNLIMITED, HiroRateLimit, TeneroRateLimit
from stacks_simulator.simulator import Simulator
from stacks_simulator.tokens import walk
from stacks_simulator.traffic import EVERYDAY_KINDS, HOUR_MS, NetworkTraffic, Traffic, start_traffic
from stacks_simulator.truth import Campaign

TRAFFIC = Traffic(kinds=EVERYDAY_KINDS, with_styles=True)


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
        market=walk,
        is_irregular=True,
    )
    start_traffic(chain, options.traffic)
    chain.advance(now_ms)
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
async def serving(simulator: Simulator, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[SimulatorAddress]:
    """Serve while the block runs. Port 0 picks a free port."""
    closing = asyncio.Event()
    listener = _listen(host, port)
    config = uvicorn.Config(
        simulator_app(simulator, closing),
        http=_AbortableProtocol,
        date_header=False,  # the simulator sends its own
        server_header=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    name = f"[{host}]" if ":" in host else host
    try:
        yield SimulatorAddress(f"http://{name}:{listener.getsockname()[1]}")
    finally:
        closing.set()
        server.should_exit = True
        await running
        listener.close()


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


class _Server(uvicorn.Server):
    """Leaves signals to its caller."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket: connections wait there until the server has started."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without IPPROTO_TCP asyncio leaves Nagle's algorithm on, which delays every response by 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise StartError(
            f"cannot listen on {host}:{port}: {error.strerror}; another port: --port; 0 for any"
        ) from error
    return listener
