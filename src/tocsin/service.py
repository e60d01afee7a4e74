"""The service: everything of the local platform, put together, opened and closed in one place.

End-to-end tests start this same object. `open` is a column of verbs: each opens what the next ones need, and
`close` goes the other way. Nothing else knows which implementation stands behind a binding.
"""

import asyncio
import os
import random
import signal
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from starlette.routing import BaseRoute

from tocsin import __version__
from tocsin.bindings import JSON, Level, Logger
from tocsin.commands import demo, explain_transaction, import_agents
from tocsin.commands.check import findings
from tocsin.commands.import_agents import ImportReport
from tocsin.competition import COMPETITION_MIGRATIONS, totals
from tocsin.competition.eligibility import Tier
from tocsin.competition.rules import rules_of
from tocsin.errors import UsageError
from tocsin.health import HealthWatch
from tocsin.platform.local.clock import SystemClock
from tocsin.platform.local.http.fetch import HttpFetch
from tocsin.platform.local.http.http_server import HttpServer
from tocsin.platform.local.logs.log_sender import LogSender
from tocsin.platform.local.logs.logs import open_logger
from tocsin.platform.local.logs.worker_logs import WorkerLogs
from tocsin.platform.local.objects.object_id import LocalObjectId
from tocsin.platform.local.objects.object_store import OBJECT_MIGRATIONS
from tocsin.platform.local.objects.runtime import Runtime
from tocsin.platform.local.sqlite.data_dir import DataDir
from tocsin.platform.local.sqlite.database import SqliteDatabase
from tocsin.platform.local.sqlite.kv import KV_MIGRATIONS, SqliteKV
from tocsin.platform.local.sqlite.migrations import Migration, load
from tocsin.platform.shared.redaction import Redactor
from tocsin.scheduler.config import SchedulerEnv, scheduler_config
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.settings import Settings, SettingsError, read, read_env_file, secret_values
from tocsin.tasks import request_jobs, tasks
from tocsin.web.app import create_app
from tocsin.web.deps import Keys, WebDeps
from tocsin.web.static_pages import page_routes

SCHEMAS = {
    "objects.sqlite": OBJECT_MIGRATIONS,
    "db.sqlite": COMPETITION_MIGRATIONS,
    "kv.sqlite": KV_MIGRATIONS,
}
LOG_APP_ID = "aibtc-landing"
LOG_FLUSH_S = 3.0


class Service:
    """One process of Tocsin: `open` it, wait for `stopped`, `close` it."""

    def __init__(self, settings: Settings, *, stream: TextIO, server: HttpServer) -> None:
        self.settings = settings
        self.clock = SystemClock()
        self.stopped = asyncio.Event()
        self.failed = False
        self._stream = stream
        self._server = server
        self._stack = AsyncExitStack()

    async def open(self, pages: Sequence[BaseRoute] = ()) -> None:
        """Open everything, or nothing. `pages` are routes that come after the API's own."""
        try:
            self._open_data()
            await self._open_logs()
            await self._open_stores()
            await self._open_scheduler()
            await self._open_web(pages)
            await self._begin()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._stack.aclose()

    def scheduler(self) -> Any:
        """A new stub: one that has seen its object reset is of no use any more."""
        return self._namespace.get_by_name(self.settings.instance)

    def stop(self, *, failed: bool = False) -> None:
        self.failed = self.failed or failed
        self.stopped.set()

    def _open_data(self) -> None:
        self._redact = Redactor(secret_values(self.settings))
        self._lines = open_logger(
            self._stream,
            self.clock,
            self._redact,
            level_min=self.settings.log_level,  # type: ignore[arg-type]
        )
        path = Path(self.settings.data_dir)
        self._data = DataDir(path, _schemas(), now=self.clock.now(), logger=self._lines)
        self._stack.callback(self._data.close)

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
                self._stream,
                self.clock,
                self._redact,
                level_min=self.settings.log_level,  # type: ignore[arg-type]  # validated
                tee=sender.offer,
            )

    async def _open_stores(self) -> None:
        self.db = SqliteDatabase(self._data.path / "db.sqlite")
        self._stack.push_async_callback(self.db.close)
        self.kv = SqliteKV(self._data.path / "kv.sqlite", self.clock)
        self._stack.push_async_callback(self.kv.close)

    async def _open_scheduler(self) -> None:
        env = SchedulerEnv(
            fetch=self.fetch,
            clock=self.clock,
            logger=self.logger,
            random=random.random,
            config=scheduler_config(self.settings),
            tasks=tasks(self.settings),
            request_jobs=request_jobs(self.settings),
            DB=self.db,
            KV=self.kv,
        )
        self.runtime = Runtime(
            self._data.path / "objects.sqlite",
            clock=self.clock,
            logger=self.logger,
            env=env,
            on_exhausted=self._arm_again,
            on_fatal=lambda _error: self.stop(failed=True),
        )
        self._namespace = self.runtime.namespace("SCHEDULER", SchedulerDO)
        await self.runtime.open()
        self._stack.push_async_callback(self.runtime.close)

    async def _open_web(self, pages: Sequence[BaseRoute]) -> None:
        self.health = HealthWatch(self.scheduler, self.kv, self.clock)
        site = WebDeps(
            scheduler=self.scheduler,
            kv=self.kv,
            db=self.db,
            clock=self.clock,
            logger=self.logger,
            keys=Keys(self.settings.admin_key, self.settings.cron_secret, self.settings.chainhook_secret),
            rules=rules_of(self.settings),
            health=self.health.snapshot,
            version=__version__,
            instance=self.settings.instance,
            runtime_metrics=lambda: asdict(self.runtime.metrics),
        )
        await self._server.start(create_app(site, [*page_routes(), *pages]))
        self._stack.push_async_callback(self._server.stop)
        self._stack.callback(site.closing.set)  # first of all, streams end

    async def _begin(self) -> None:
        """Arm the scheduler: from here on it needs nobody."""
        await self.scheduler().arm()
        await self.health.look()
        watching = asyncio.create_task(self.health.watch())
        self._stack.callback(watching.cancel)
        self.logger.info(
            "service.started", url=self._server.url, data_dir=str(self._data.path), version=__version__
        )

    async def _arm_again(self, object_id: LocalObjectId, error: Exception) -> None:
        """An exhausted alarm must not be the end of all periodic work."""
        self.logger.error("scheduler.rearmed", instance=object_id.name, error=repr(error))
        await self._namespace.get(object_id).arm()


def serve(*, as_demo: bool, host: str | None, port: int | None, data_dir: Path | None) -> None:
    """Run the service as a command does; ends the process with its exit code."""
    settings = read_settings(host=host, port=port, data_dir=data_dir)
    chosen = None if data_dir is None else str(data_dir)
    with demo.demo_directory(chosen, demo=as_demo) as demo_dir, asyncio.Runner(loop_factory=_loop) as runner:
        code = runner.run(run(settings, stream=sys.stdout, say=_say, demo_dir=demo_dir))
    if code:
        raise SystemExit(code)


def check() -> list[str]:
    """What stands in the way of a good start, with the fix for each."""
    try:
        settings = read_settings()
    except SettingsError as error:
        return str(error).splitlines()[1:] or [str(error)]
    return findings(settings, _schemas())


def import_file(file: Path, *, data_dir: Path | None, on_progress: Callable[[int], None]) -> ImportReport:
    """Agents and claims of a file into the data directory; see `import_agents.py`."""
    with _open_roster(read_settings(data_dir=data_dir)) as connection:
        return import_agents.import_file(connection, file, on_progress)


def _open_roster(settings: Settings) -> AbstractContextManager[sqlite3.Connection]:
    return import_agents.opened(
        Path(settings.data_dir), _schemas(), now=SystemClock().now(), logger=_command_logger(settings)
    )


def _schemas() -> dict[str, list[Migration]]:
    return {name: load(directory) for name, directory in SCHEMAS.items()}


def explain(*, txid: str | None, file: Path | None, tier: Tier | None, data_dir: Path | None) -> JSON:
    """What the verifier makes of a transaction, of a file or by its id; see `explain_transaction.py`."""
    settings = read_settings(data_dir=data_dir)
    if (txid is None) == (file is None):
        raise UsageError("Say which transaction: `tocsin explain TXID`, or `tocsin explain --file tx.json`.")
    if file is not None:
        return explain_transaction.explain_file(settings, file, tier)
    logger, budget_logger = _command_logger(settings), _command_logger(settings, "ERROR")
    return explain_transaction.explain_txid(
        settings, txid or "", tier, logger=logger, budget_logger=budget_logger
    )


def rebuild(data_dir: Path | None) -> dict[str, int]:
    """Count the board's totals anew; answers how many rows of each differed."""
    path = Path(read_settings(data_dir=data_dir).data_dir) / "db.sqlite"
    if not path.is_file():
        raise UsageError(f"There is no {path}: give --data-dir.")

    async def count() -> dict[str, int]:
        db = SqliteDatabase(path)
        try:
            drifted = await totals.drift(db)
            await totals.rebuild(db)
        finally:
            await db.close()
        return drifted

    return asyncio.run(count())


def _command_logger(settings: Settings, level_min: Level = "WARN") -> Logger:
    """A command's own words go to stdout; what goes wrong on the way is a line on stderr."""
    return open_logger(sys.stderr, SystemClock(), Redactor(secret_values(settings)), level_min=level_min)


def read_settings(
    *, host: str | None = None, port: int | None = None, data_dir: Path | None = None
) -> Settings:
    """From `.env` here, the environment, and the command line: the later wins."""
    file = Path(".env")
    environment = {**(read_env_file(file.read_bytes()) if file.is_file() else {}), **os.environ}
    given = {"TOCSIN_HOST": host, "TOCSIN_PORT": port, "TOCSIN_DATA_DIR": data_dir}
    return read(environment | {name: str(value) for name, value in given.items() if value is not None})


async def run(
    settings: Settings, *, stream: TextIO, say: Callable[[str], None], demo_dir: str | None = None
) -> int:
    """Serve until told to stop; answers the exit code. With `demo_dir`, against the bundled simulator."""
    server = HttpServer(settings.host, settings.port, settings.trusted_proxies)
    try:
        if demo_dir is None:
            service = Service(settings, stream=stream, server=server)
            await service.open()
        else:
            simulator = demo.build(SystemClock())
            settings = demo.demo_settings(settings, server.url, demo_dir)
            with _open_roster(settings) as connection:  # first, so that the first sweep finds them
                demo.register_agents(connection, simulator)
            service = Service(settings, stream=stream, server=server)
            await service.open([demo.mount(simulator)])
    except BaseException:
        server.close()
        raise
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, service.stop)
    say(_welcome(server.url, settings, as_demo=demo_dir is not None))
    try:
        await service.stopped.wait()
    finally:
        await service.close()
    return 1 if service.failed else 0


def _welcome(url: str, settings: Settings, *, as_demo: bool) -> str:
    lines = [
        f"Tocsin {__version__} is running. Ctrl-C stops it.",
        f"  leaderboard  {url}/leaderboard",
        f"  console      {url}/console",
        f"  prices       {url}/api/prices",
        f"  API          {url}/api/docs",
    ]
    if as_demo:
        lines += [f"  admin key    {settings.admin_key}", f"  the truth    {url}/simulator/_truth"]
    elif settings.admin_key is None:
        lines += ["  ADMIN_KEY is not set: the console and the admin routes refuse."]
    return "\n".join(lines)


def _say(text: str) -> None:
    """To people: the log has the other stream."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not on every platform
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
