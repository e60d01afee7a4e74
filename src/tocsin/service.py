"""The service on one machine: opens the stores, the application, its object and the server, and closes them.

`Machine` is what it gets from outside: clock, fetch, log. A simulation opens the same `Service` on a machine of its
own. Each step of `open` opens what the next ones need; `close` closes everything in reverse order.

Emits `service.started`, `scheduler.rearmed`, `store.file_lost` and `store.files_restored`.
"""

import asyncio
import gc
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol, TextIO

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from holdfast.errors import DataDirInUse
from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import DataDir, FileFault
from holdfast.local.database import SqliteDatabase
from holdfast.local.kv import SqliteKV
from holdfast.local.object_id import LocalObjectId
from holdfast.local.runtime import Runtime, Stub
from holdfast.types import Logger
from tocsin import __version__
from tocsin.app import Parts, Platform, build
from tocsin.commands.client import DEMO_DIR
from tocsin.commands.files import DB_FILE, KV_FILE, OBJECTS_FILE, free_port, load_migrations, refuse_demo
from tocsin.commands.reload import Reloader, SettingsSource
from tocsin.fetch import Fetch
from tocsin.local.fetch import HttpFetch
from tocsin.local.logs import LineStream, LogWriter, TerminalLines, WorkerLogs, library_logs, open_logger
from tocsin.local.server import HttpServer
from tocsin.local.supervisor import Supervisor, inherited_sockets, is_supervised
from tocsin.logs import LOG_APP_ID, LogSender, Redactor
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.health import health_of
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.types import Reloaded
from tocsin.scheduler.watch import why_refused
from tocsin.settings import Settings, read, secret_values
from tocsin.web.deps import Process
from tocsin.web.pages import page_routes

LOG_FLUSH_S = 3.0
LINES_FLUSH_S = 1.0
LOCK_WAIT_S = 15.0  # longer than a process takes to stop
LOCK_LOOK_S = 0.05


class Server(Protocol):
    """Serves the web application. `HttpServer` is one; a simulation has its own."""

    @property
    def url(self) -> str: ...
    async def start(self, app: ASGIApp, /) -> None: ...
    async def stop(self) -> None: ...
    def metrics(self) -> Mapping[str, float]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a service gets of its machine, beside its data directory. A simulation has its own."""

    clock: SystemClock
    fetch: Fetch
    logger: Logger
    redact: Redactor
    random: Callable[[], float] = random.random
    announce: Callable[[str], object] = lambda _: None  # shows a text to people, in the same place as the log
    metrics: Callable[[], Mapping[str, float]] = dict


@asynccontextmanager
async def open_machine(settings: Settings, stream: TextIO) -> AsyncIterator[Machine]:
    """The real machine, with the log on this stream and, if the settings name one, at the log service."""
    clock, redact = SystemClock(), Redactor(secret_values(settings))
    async with AsyncExitStack() as stack:
        writer = LogWriter(stream, clock)
        stack.callback(writer.close, LINES_FLUSH_S)
        # People read a terminal, programs read everything else.
        shown: LineStream = TerminalLines(writer) if stream.isatty() else writer
        lines = logger = open_logger(shown, clock, redact, level_min=settings.log_level)
        stack.enter_context(library_logs(lines))
        fetch = await stack.enter_async_context(aclosing(HttpFetch()))
        url, key = settings.worker_logs_url, settings.worker_logs_key
        if url is not None and key is not None:
            sender = LogSender(WorkerLogs(fetch, url, key, redact), LOG_APP_ID, clock, lines, asyncio.create_task)
            stack.push_async_callback(sender.close, LOG_FLUSH_S)
            logger = open_logger(shown, clock, redact, level_min=settings.log_level, tee=sender.offer)
        yield Machine(
            clock=clock,
            fetch=fetch,
            logger=logger,
            redact=redact,
            announce=lambda text: shown.write(f"{text}\n"),
            metrics=lambda: {"log_lines_dropped": writer.dropped},
        )


class Service:
    """One process of Tocsin: `open` it, `watch` it, wait for `stopped`, `close` it."""

    def __init__(
        self,
        settings: Settings,
        machine: Machine,
        server: Server,
        *,
        source: SettingsSource | None = None,
        parts: Parts = Parts(),  # noqa: B008 - it is frozen
    ) -> None:
        self.settings = settings
        self.machine = machine
        self.stopped = asyncio.Event()
        self.failed = False
        self._server = server
        self._source = source or SettingsSource()
        self._parts = parts
        self._stack = AsyncExitStack()
        self._fault: FileFault | None = None
        self._started_at_s = machine.clock.now() / 1000

    async def open(self, pages: Sequence[BaseRoute] = (), simulator: str | None = None) -> None:
        """Open everything or nothing. `pages` are routes to add after those of the API; a demo has a simulator."""
        try:
            await self._open_stores()
            await self._open_scheduler(simulator)
            await self._server.start(self.app.web([*page_routes(), *pages]))
            self._stack.push_async_callback(self._server.stop)
            self._stack.callback(self.app.deps.closing.set)  # runs first: ends the event streams
            # From here on, the scheduler runs on its own.
            await self.scheduler().arm()
            await self.app.health.check()
        except BaseException:
            await self.close()
            raise

    def watch(self) -> None:
        """Look after the process until it is closed, and keep its supervisor informed."""
        machine, health = self.machine, self.app.health
        supervisor = Supervisor(os.environ, os.getpid(), machine.logger)

        def status() -> str:
            found = health_of(health.seen(), machine.clock.now())
            return ": ".join([found.state, *([". ".join(found.reasons)] if found.reasons else [])])

        supervisor.ready(status())
        for work in (health.watch(), supervisor.keep_informed(machine.clock, status)):
            self._stack.callback(asyncio.create_task(work).cancel)
        self._stack.callback(supervisor.stopping)
        machine.logger.info("service.started", url=self._server.url, data_dir=str(self._data.path), version=__version__)

    async def close(self) -> None:
        await self._stack.aclose()

    def scheduler(self) -> SchedulerClient:
        return self.app.scheduler()

    def stop(self, *, failed: bool = False) -> None:
        self.failed = self.failed or failed
        self.stopped.set()

    async def _open_stores(self) -> None:
        self._data = await self._lock_data()
        self._stack.callback(self._data.close)
        self.db = SqliteDatabase(self._data.path / DB_FILE)
        self._stack.push_async_callback(self.db.close)
        self.kv = SqliteKV(self._data.path / KV_FILE, self.machine.clock)
        self._stack.push_async_callback(self.kv.close)

    async def _lock_data(self) -> DataDir:
        """Lock the data directory. Under a supervisor, wait some time for the previous process to release it."""
        path, clock = Path(self.settings.data_dir), self.machine.clock
        ends_at = clock.monotonic() + (LOCK_WAIT_S if is_supervised(os.environ) else 0.0)
        while True:
            try:
                return DataDir(path, load_migrations(), now=clock.now(), logger=self.machine.logger)
            except DataDirInUse:
                if clock.monotonic() >= ends_at:
                    raise
            await clock.sleep(LOCK_LOOK_S)

    async def _open_scheduler(self, simulator: str | None) -> None:
        """Build the application and open the runtime of its object."""
        machine = self.machine
        process = Process(
            check_files=self._check_files,
            metrics=self._metrics,
            reload=self._reload,
            compress=True,
            simulator=simulator,
        )
        platform = Platform(
            clock=machine.clock,
            fetch=machine.fetch,
            logger=machine.logger,
            db=self.db,
            kv=self.kv,
            stub=self._stub,
            mask=machine.redact.text,
            random=machine.random,
            process=process,
        )
        self.app = build(platform, self.settings, self._parts)
        self.reloader = Reloader(self.app, self._source, machine.redact)
        self.runtime = Runtime(
            self._data.path / OBJECTS_FILE,
            clock=machine.clock,
            logger=machine.logger,
            env=self.app.env,
            on_exhausted=self._arm_again,
            on_fatal=lambda _error: self.stop(failed=True),
            chance=machine.random,
            idle_s=None,  # the object is asked for its status every second
        )
        self._namespace = self.runtime.namespace("SCHEDULER", SchedulerDO)
        await self.runtime.open()
        self._stack.push_async_callback(self.runtime.close)

    def _stub(self, name: str) -> Stub:
        return self._namespace.get_by_name(name)

    async def _reload(self) -> Reloaded:
        return await self.reloader.reload()

    def _metrics(self) -> dict[str, float]:
        return {
            **asdict(self.runtime.metrics),
            **self.machine.metrics(),
            **self._server.metrics(),
            "started_at_s": self._started_at_s,
        }

    def _check_files(self) -> FileFault | None:
        """Check for files that were deleted or replaced; while writes would be lost, refuse all of them."""
        fault, logger = self._data.fault(), self.machine.logger
        if fault != self._fault:
            self._fault = fault
            for store in (self.db, self.kv, self.runtime):
                store.refuse_writes(why_refused(fault))
            if fault is None:
                logger.info("store.files_restored")
            else:
                logger.error("store.file_lost", file=str(fault.file), error=fault.sentence)
        return fault

    async def _arm_again(self, object_id: LocalObjectId, error: Exception) -> None:
        """Set the alarm again after its retries are exhausted; otherwise all periodic work would stop."""
        self.machine.logger.error("scheduler.rearmed", instance=object_id.name, error=repr(error))
        await self._namespace.get(object_id).arm()


def serve(*, as_demo: bool, bad_times: bool, host: str | None, port: int | None, data_dir: Path | None) -> None:
    """Run the service for the command; exits the process with its exit code."""
    demo_dir = str(data_dir or DEMO_DIR) if as_demo else None
    if as_demo and port is None:
        port = free_port(read(SettingsSource(host).environment()))
    source = SettingsSource(host, port, data_dir)
    settings = read(source.environment())
    with asyncio.Runner(loop_factory=_loop) as runner:
        code = runner.run(run(settings, stream=sys.stdout, demo_dir=demo_dir, source=source, bad_times=bad_times))
    if code:
        raise SystemExit(code)


async def run(
    settings: Settings,
    *,
    stream: TextIO,
    demo_dir: str | None = None,
    source: SettingsSource | None = None,
    bad_times: bool = False,
) -> int:
    """Serve until stopped; returns the exit code. With `demo_dir`, run against the bundled simulator."""
    inherited, has_own_key = inherited_sockets(os.environ, os.getpid()), bool(settings.admin_key)
    server = HttpServer(settings.host, settings.port, settings.trusted_proxies, inherited)
    pages: Sequence[BaseRoute] = ()
    simulator = None
    async with AsyncExitStack() as stack:
        stack.callback(server.close)
        if demo_dir is None:
            refuse_demo(Path(settings.data_dir))
        else:
            from tocsin.commands import demo  # the simulator is a third of all loaded code

            made = demo.prepare(settings, server.url, server.port, demo_dir, bad_times=bad_times, clock=SystemClock())
            settings, pages, simulator = made.settings, made.routes, demo.PATH
            source = replace(source or SettingsSource(), adjusted=made.adjusted)
        machine = await stack.enter_async_context(open_machine(settings, stream))
        service = Service(settings, machine, server, source=source)
        await service.open(pages, simulator)
        stack.push_async_callback(service.close)
        service.watch()
        gc.freeze()  # otherwise garbage collection visits every module and class, and delays requests by 60 ms
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, service.stop)
        if not _has_terminal():  # closing a terminal sends SIGHUP too, which must end the process
            loop.add_signal_handler(signal.SIGHUP, service.reloader.reload_on_signal)
        say = machine.announce if stream.isatty() else _say
        say(_welcome(server.url, settings, as_demo=demo_dir is not None, has_own_key=has_own_key))
        await service.stopped.wait()
    return 1 if service.failed else 0


def _welcome(url: str, settings: Settings, *, as_demo: bool, has_own_key: bool) -> str:
    lines = [
        f"Tocsin {__version__} is running. Ctrl-C stops it.",
        f"  leaderboard  {url}/leaderboard",
        f"  console      {url}/console",
        f"  prices       {url}/api/prices",
        f"  API          {url}/api/docs",
    ]
    if as_demo:
        key = "your ADMIN_KEY" if has_own_key else settings.admin_key[0].secret
        lines += [f"  admin key    {key}", f"  simulator    {url}/simulator/_truth"]
    elif not settings.admin_key:
        lines += ["  ADMIN_KEY is not set: the console and the admin routes refuse all requests."]
    return "\n".join(lines)


def _has_terminal() -> bool:
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def _say(text: str) -> None:
    """Show a text to the person at the terminal, while the log goes elsewhere."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not available on every platform
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
