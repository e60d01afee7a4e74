"""The service: assembles, opens and closes all parts of the local platform in one place.

End-to-end tests start the same object. Each step of `open` opens what the next ones need; `close` closes everything in
reverse order. Nothing else knows the implementation of a binding.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TextIO

from starlette.routing import BaseRoute

from holdfast.errors import DataDirInUse
from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import DataDir, FileFault
from holdfast.local.database import SqliteDatabase
from holdfast.local.kv import SqliteKV
from holdfast.local.object_id import LocalObjectId
from holdfast.local.runtime import Runtime, Stub
from holdfast.types import Logger
from tocsin import __version__
from tocsin.app import Platform, Process, build
from tocsin.commands.files import (
    DB_FILE,
    KV_FILE,
    OBJECTS_FILE,
    chosen_directory,
    load_migrations,
    read_settings,
    refuse_demo,
)
from tocsin.commands.reload import Reloader, SettingsSource
from tocsin.local.fetch import HttpFetch
from tocsin.local.logs import LineStream, LogSender, LogWriter, TerminalLines, WorkerLogs, library_logs, open_logger
from tocsin.local.server import HttpServer
from tocsin.local.supervisor import Supervisor, inherited_sockets, is_supervised
from tocsin.logs import LOG_APP_ID, Redactor
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.health import health_of
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.types import Reloaded
from tocsin.scheduler.watch import why_refused
from tocsin.settings import Settings, secret_values
from tocsin.web.pages import page_routes

LOG_FLUSH_S = 3.0
LINES_FLUSH_S = 1.0
LOCK_WAIT_S = 15.0  # longer than a process takes to stop
LOCK_LOOK_S = 0.05


class Service:
    """One process of Tocsin: `open` it, wait for `stopped`, `close` it."""

    def __init__(
        self, settings: Settings, *, stream: TextIO, server: HttpServer, source: SettingsSource | None = None
    ) -> None:
        self.settings = settings
        self._source = source or SettingsSource()
        self.clock = SystemClock()
        self.stopped = asyncio.Event()
        self.failed = False
        self._stream = stream
        self._server = server
        self._stack = AsyncExitStack()
        self._fault: FileFault | None = None
        self._started_at_s = self.clock.now() / 1000

    async def open(self, pages: Sequence[BaseRoute] = (), simulator: str | None = None) -> None:
        """Open everything or nothing. `pages` are routes to add after those of the API; a demo has a simulator."""
        try:
            await self._open_data()
            await self._open_logs()
            await self._open_stores()
            await self._open_scheduler(simulator)
            await self._open_web(pages)
            await self._begin()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._stack.aclose()

    def scheduler(self) -> SchedulerClient:
        return self.app.scheduler()

    def announce(self, text: str) -> None:
        """Show a text to people, in the same place as the log."""
        self._shown.write(f"{text}\n")

    def stop(self, *, failed: bool = False) -> None:
        self.failed = self.failed or failed
        self.stopped.set()

    async def _open_data(self) -> None:
        self._redact = Redactor(secret_values(self.settings))
        self._writer = LogWriter(self._stream, self.clock)
        self._stack.callback(self._writer.close, LINES_FLUSH_S)
        # People read a terminal, programs read everything else.
        self._shown: LineStream = TerminalLines(self._writer) if self._stream.isatty() else self._writer
        self._lines = open_logger(self._shown, self.clock, self._redact, level_min=self.settings.log_level)
        self._stack.enter_context(library_logs(self._lines))
        self._data = await self._lock_data()
        self._stack.callback(self._data.close)

    async def _lock_data(self) -> DataDir:
        """Lock the data directory. Under a supervisor, wait some time for the previous process to release it."""
        path, wait_s = Path(self.settings.data_dir), LOCK_WAIT_S if is_supervised(os.environ) else 0.0
        ends_at = self.clock.monotonic() + wait_s
        while True:
            try:
                return DataDir(path, load_migrations(), now=self.clock.now(), logger=self._lines)
            except DataDirInUse:
                if self.clock.monotonic() >= ends_at:
                    raise
            await self.clock.sleep(LOCK_LOOK_S)

    async def _open_logs(self) -> None:
        self.fetch = HttpFetch()
        self._stack.push_async_callback(self.fetch.close)
        self.logger: Logger = self._lines
        url, key = self.settings.worker_logs_url, self.settings.worker_logs_key
        if url is not None and key is not None:
            sender = LogSender(WorkerLogs(self.fetch, url, key, self._redact), LOG_APP_ID, self._lines)
            sender.start()
            self._stack.push_async_callback(sender.close, LOG_FLUSH_S)
            self.logger = open_logger(
                self._shown, self.clock, self._redact, level_min=self.settings.log_level, tee=sender.offer
            )

    async def _open_stores(self) -> None:
        self.db = SqliteDatabase(self._data.path / DB_FILE)
        self._stack.push_async_callback(self.db.close)
        self.kv = SqliteKV(self._data.path / KV_FILE, self.clock)
        self._stack.push_async_callback(self.kv.close)

    async def _open_scheduler(self, simulator: str | None) -> None:
        """Build the application and open the runtime of its object."""
        process = Process(
            check_files=self._check_files,
            metrics=self._metrics,
            reload=self._reload,
            compress=True,
            simulator=simulator,
        )
        platform = Platform(
            clock=self.clock,
            fetch=self.fetch,
            logger=self.logger,
            db=self.db,
            kv=self.kv,
            stub=self._stub,
            mask=self._redact.text,
            process=process,
        )
        self.app = build(platform, self.settings)
        self.health = self.app.health
        self.reloader = Reloader(self.app, self._source, self._redact)
        self.runtime = Runtime(
            self._data.path / OBJECTS_FILE,
            clock=self.clock,
            logger=self.logger,
            env=self.app.env,
            on_exhausted=self._arm_again,
            on_fatal=lambda _error: self.stop(failed=True),
        )
        self._namespace = self.runtime.namespace("SCHEDULER", SchedulerDO)
        await self.runtime.open()
        self._stack.push_async_callback(self.runtime.close)

    async def _open_web(self, pages: Sequence[BaseRoute]) -> None:
        await self._server.start(self.app.web([*page_routes(), *pages]))
        self._stack.push_async_callback(self._server.stop)
        self._stack.callback(self.app.deps.closing.set)  # runs first: ends the event streams

    def _stub(self, name: str) -> Stub:
        return self._namespace.get_by_name(name)

    async def _reload(self) -> Reloaded:
        return await self.reloader.reload()

    def _metrics(self) -> dict[str, float]:
        return {
            **asdict(self.runtime.metrics),
            "log_lines_dropped": self._writer.dropped,
            "connections_dropped": self._server.connections.dropped,
            "connections_open": self._server.connections.count,
            "started_at_s": self._started_at_s,
        }

    async def _begin(self) -> None:
        """Set the scheduler's alarm. From then on, the scheduler runs on its own."""
        await self.app.scheduler().arm()
        await self.health.look()
        watching = asyncio.create_task(self.health.watch())
        self._stack.callback(watching.cancel)
        self._tell_supervisor()
        self.logger.info("service.started", url=self._server.url, data_dir=str(self._data.path), version=__version__)

    def _tell_supervisor(self) -> None:
        supervisor = Supervisor(os.environ, os.getpid(), self.logger)

        def status() -> str:
            health = health_of(self.health.seen(), self.clock.now())
            return ": ".join([health.state, *(["; ".join(health.reasons)] if health.reasons else [])])

        supervisor.ready(status())
        informing = asyncio.create_task(supervisor.keep_informed(self.clock, status))
        self._stack.callback(informing.cancel)
        self._stack.callback(supervisor.stopping)

    def _check_files(self) -> FileFault | None:
        """Check for files that were deleted or replaced; while writes would be lost, refuse all of them."""
        fault = self._data.fault()
        if fault != self._fault:
            self._fault = fault
            for store in (self.db, self.kv, self.runtime):
                store.refuse_writes(why_refused(fault))
            if fault is None:
                self.logger.info("store.files_restored")
            else:
                self.logger.error("store.file_lost", file=str(fault.file), error=fault.sentence)
        return fault

    async def _arm_again(self, object_id: LocalObjectId, error: Exception) -> None:
        """Set the alarm again after its retries are exhausted; otherwise all periodic work would stop."""
        self.logger.error("scheduler.rearmed", instance=object_id.name, error=repr(error))
        await self._namespace.get(object_id).arm()


def serve(*, as_demo: bool, bad_times: bool, host: str | None, port: int | None, data_dir: Path | None) -> None:
    """Run the service for the command; exits the process with its exit code."""
    demo_dir = None
    with ExitStack() as stack:
        if as_demo:
            demo_dir, port = stack.enter_context(chosen_directory(data_dir, port))
        source = SettingsSource(host, port, data_dir)
        settings = read_settings(host=host, port=port, data_dir=data_dir)
        runner = stack.enter_context(asyncio.Runner(loop_factory=_loop))
        serving = run(settings, stream=sys.stdout, demo_dir=demo_dir, source=source, bad_times=bad_times)
        code = runner.run(serving)
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
    try:
        if demo_dir is None:
            refuse_demo(Path(settings.data_dir))
            service = Service(settings, stream=stream, server=server, source=source)
            await service.open()
        else:
            from tocsin.commands import demo  # the simulator is a third of all loaded code

            made = demo.prepare(settings, server.url, server.port, demo_dir, bad_times=bad_times, clock=SystemClock())
            settings = made.settings
            source = replace(source or SettingsSource(), adjusted=made.adjusted)
            service = Service(settings, stream=stream, server=server, source=source)
            await service.open(made.routes, simulator=demo.PATH)
    except BaseException:
        server.close()
        raise
    gc.freeze()  # otherwise garbage collection visits every module and class, and delays requests by 60 ms
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, service.stop)
    if not _has_terminal():  # closing a terminal sends SIGHUP too, which must end the process
        loop.add_signal_handler(signal.SIGHUP, service.reloader.reload_on_signal)
    say = service.announce if stream.isatty() else _say
    say(_welcome(server.url, settings, as_demo=demo_dir is not None, has_own_key=has_own_key))
    try:
        await service.stopped.wait()
    finally:
        await service.close()
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
        lines += [f"  admin key    {key}", f"  the truth    {url}/simulator/_truth"]
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
