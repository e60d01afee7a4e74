"""Count the files of ours that Tocsin executes on three walks: `make walks`, or `make walks VERBOSE=1` to list them.

A price and a swap on their way to a visitor, and a pause on its way to a task that does not start. The real object,
stores and web application run in virtual time against the simulated upstreams. A switch means that another
file than before is entered, by a call or because a coroutine continues. The goals show when a change has scattered
something.
"""

import os
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from starlette.types import ASGIApp

from holdfast.local.data_dir import DataDir
from holdfast.local.database import SqliteDatabase
from holdfast.local.kv import SqliteKV
from holdfast.local.runtime import Runtime
from holdfast.testing.virtual_time import VirtualClock, run_virtual
from holdfast_testing.captured_log import CapturedLog
from stacks_simulator.simulator import Simulator
from support.asgi import Answer, ask, unchecked
from support.competition import chain_of, register
from support.simulated_fetch import SimulatedFetch
from support.tocsin_command import tocsin_here
from tocsin.app import App, Parts, Platform, build, tasks
from tocsin.commands.files import DB_FILE, KV_FILE, OBJECTS_FILE, load_migrations
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.types import RunFilter
from tocsin.settings import AccessKey, Settings
from tocsin.web.deps import Process

ROOT = Path(__file__).parents[1]
OURS = (f"{ROOT}/src/", f"{ROOT}/packages/holdfast/src/")
ADMIN_KEY = "a-key-of-an-operator-0123456789"
PAUSE = "/api/admin/scheduler?action=pause&for=2h"
# Files, at most.
GOALS = {
    "a price: refreshed": 45,
    "a price: read": 15,
    "a price: read, cached": 11,
    "a swap: recorded": 55,
    "a swap: shown": 22,
    "a pause: the command": 7,
    "a pause: the server": 35,
    "a pause: the alarm": 25,
}


@dataclass
class Walk:
    """The files in the order of the first visit, and how often another file was entered."""

    name: str
    files: list[str] = field(default_factory=list)
    switches: int = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Follow everything that this thread calls. Imports do not count."""
        self._at = ""
        sys.setprofile(self._enter)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _enter(self, frame: FrameType, event: str, _argument: object) -> None:
        file = frame.f_code.co_filename
        is_ours = file.startswith(OURS) and "/testing/" not in file
        if event != "call" or file == self._at or not is_ours or frame.f_code.co_name == "<module>":
            return
        self._at = file
        self.switches += 1
        if file not in self.files:
            self.files.append(file)


@dataclass
class World:
    """The service, without its server."""

    app: App
    web: ASGIApp
    runtime: Runtime
    simulator: Simulator

    async def rings(self) -> None:
        """Wait for the next ring of the alarm, and until its work is done."""
        rung = self.runtime.metrics.alarms_rung
        while self.runtime.metrics.alarms_rung == rung:
            await self.simulator.clock.sleep(1)
        await self.simulator.clock.sleep(5)

    async def idle(self) -> None:
        """Wait until nothing goes on beside what is asked next."""
        await self.simulator.clock.sleep(20)

    async def runs(self, task: str) -> int:
        runs = (await self.app.scheduler().runs(RunFilter(task, 500))).runs
        assert all(run.outcome == "ok" for run in runs), runs
        return len(runs)

    async def asked(self, target: str, **options: Any) -> Answer:
        answer = await ask(unchecked(self.web), target, **options)
        assert answer.status == 200, answer
        return answer


@asynccontextmanager
async def world(*names: str) -> AsyncIterator[World]:
    """The service with these tasks and three agents."""
    settings = Settings(
        admin_key=(AccessKey("operator", "operator", ADMIN_KEY),), hiro_api_key="key", tenero_api_key="key"
    )
    simulator = chain_of(3)
    clock, log = simulator.clock, CapturedLog()
    assert isinstance(clock, VirtualClock)
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.callback(DataDir(directory, load_migrations(), now=clock.now(), logger=log).close)
        db, kv = SqliteDatabase(directory / DB_FILE), SqliteKV(directory / KV_FILE, clock)
        stack.push_async_callback(db.close)
        stack.push_async_callback(kv.close)
        await register(db, simulator.chain.wallets)
        platform = Platform(
            clock=clock,
            fetch=SimulatedFetch(simulator),
            logger=log,
            db=db,
            kv=kv,
            stub=lambda name: namespace.get_by_name(name),  # noqa: PLW0108 - it is made below
            random=Random(1).random,
            process=Process(),
        )
        parts = Parts(lambda read: [task for task in tasks(read) if task.name in names])
        app = build(platform, settings, parts)
        runtime = Runtime(directory / OBJECTS_FILE, clock=clock, logger=log, env=app.env)
        namespace = runtime.namespace("SCHEDULER", SchedulerDO)
        await runtime.open()
        stack.push_async_callback(runtime.close)
        await app.scheduler().arm()
        made = World(app, app.web(), runtime, simulator)
        await made.rings()
        await made.rings()
        await app.health.check()
        yield made


async def a_price(refreshed: Walk, read: Walk, cached: Walk) -> None:
    async with world("tenero") as service:
        before = await service.runs("tenero")
        with refreshed.taken():
            await service.rings()
        assert await service.runs("tenero") == before + 1
        await service.idle()
        for walk in (read, cached):
            with walk.taken():
                answer = await service.asked("/api/prices")
            assert answer.json()["prices"]


async def a_swap(recorded: Walk, shown: Walk) -> None:
    async with world("feed", "board") as service:
        chain = service.simulator.chain
        chain.swap(chain.wallets[0], "simple")
        chain.mine()
        with recorded.taken():
            await service.rings()
        await service.idle()
        with shown.taken():
            answer = await service.asked("/api/competition/leaderboard")
        assert answer.json()["rows"][0]["tradeCount"] == 1


async def a_pause(server: Walk, alarm: Walk) -> bytes:
    async with world("tenero") as service:
        before = await service.runs("tenero")
        with server.taken():
            answer = await service.asked(PAUSE, method="POST", headers={"x-admin-key": ADMIN_KEY})
        with alarm.taken():
            await service.rings()
        assert await service.runs("tenero") == before
    return answer.body


def the_command(walk: Walk, answer: bytes) -> None:
    """Run it against a server that has this answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of http.server
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {"TOCSIN_PORT": str(server.server_port), "ADMIN_KEY": ADMIN_KEY}
        tocsin_here("pause", "--for", "2h", environment=environment)  # imports what it needs
        with walk.taken():
            done = tocsin_here("pause", "--for", "2h", environment=environment)
        server.shutdown()
    assert done.stdout.startswith("Paused until"), done


def show(walks: Sequence[Walk], *, verbose: bool) -> None:
    print(f"{'':24}{'files':>6}{'goal':>6}{'switches':>10}")
    for walk in walks:
        missed = "" if len(walk.files) <= GOALS[walk.name] else "  more than the goal"
        print(f"{walk.name:24}{len(walk.files):>6}{GOALS[walk.name]:>6}{walk.switches:>10}{missed}")
        for file in walk.files if verbose else ():
            print(f"    {Path(file).relative_to(ROOT)}")


def main() -> int:
    walks = refreshed, read, cached, recorded, shown, command, server, alarm = [Walk(name) for name in GOALS]
    run_virtual(a_price(refreshed, read, cached))
    run_virtual(a_swap(recorded, shown))
    the_command(command, run_virtual(a_pause(server, alarm)))
    show(walks, verbose=bool(os.environ.get("VERBOSE")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
