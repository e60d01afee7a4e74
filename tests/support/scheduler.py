"""SchedulerDO in virtual time, with the test's own tasks and a scripted or simulated wire."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from holdfast.errors import ObjectReset
from holdfast.local.object_id import LocalObjectId
from holdfast.local.runtime import LocalNamespace, Runtime
from holdfast.testing.virtual_time import START_MS, VirtualClock
from holdfast.types import JSON, KV, Database, DurableObject
from holdfast.values import decode
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.stores import make_objects_file
from tocsin.app import Parts, Platform, build
from tocsin.fetch import Fetch, FetchResponse
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.config import SchedulerEnv
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.task import RequestJob, Task, TaskContext, TaskResult
from tocsin.scheduler.types import Outcome, RunFilter, RunRecord, Status
from tocsin.settings import Settings
from tocsin.shape import FreeForm
from tocsin.upstream.answer import Limited
from tocsin.upstream.budget import Quota
from tocsin.upstream.client import Upstream
from tocsin.upstream.hiro import hiro_upstream
from tocsin.upstream.tenero import TeneroClient, tenero_upstream

MINUTE = 60_000
FIVE = 5 * MINUTE
ROOMY = Quota(minute=10_000, month=10_000_000)
QUOTAS = {"hiro": Quota(20, 50, 150_000), "tenero": Quota(None, 100, 50_000)}

Work: TypeAlias = Callable[[TaskContext], Awaitable[TaskResult]]


async def no_wire(url: str, **_options: Any) -> FetchResponse:
    raise AssertionError(f"this test makes no calls, not even to {url}")


@dataclass
class Job:
    """A task for tests: the test supplies what each run does, and the start times are kept."""

    name: str
    cadence_ms: int
    slice_ms: int = 4 * MINUTE
    upstream: str | None = "tenero"
    calls_per_run: float = 1.0
    started: list[int] = field(default_factory=list)
    run: Work | None = None

    def task(self) -> Task:
        return Task(
            name=self.name,
            cadence_ms=self.cadence_ms,
            slice_ms=self.slice_ms,
            run=self._run,
            upstream=self.upstream,
            calls_per_run=self.calls_per_run,
        )

    async def _run(self, context: TaskContext) -> TaskResult:
        self.started.append(context.clock.now())
        return TaskResult({"succeeded": 1}) if self.run is None else await self.run(context)


def doing(outcome: TaskResult | Exception | None = None, *, for_s: float = 0.0) -> Work:
    """A run that takes this long, and then ends or raises like this."""

    async def work(context: TaskContext) -> TaskResult:
        if for_s:
            await context.clock.sleep(for_s)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome or TaskResult({})

    return work


async def hang(_context: TaskContext) -> TaskResult:
    """A run that never ends by itself."""
    await asyncio.Event().wait()
    raise AssertionError("not reached")


def limited(for_ms: int, **fields: Any) -> Work:
    """A run that asks to be held back for so long."""

    async def work(context: TaskContext) -> TaskResult:
        return TaskResult({}, limited_until=context.clock.now() + for_ms, **fields)

    return work


async def refresh_prices(context: TaskContext) -> TaskResult:
    """One call; a 429 is a failure that holds the task back."""
    tenero = context.upstream("tenero", TeneroClient)
    answer = await tenero.fetch_token_price_usd("stx", context.logger, context.session)
    counters: dict[str, JSON] = {"calls": context.session.calls, "rateLimitRemaining": {"minute": None}}
    if isinstance(answer, Limited):
        return TaskResult(counters, answer.reason, answer.until, "Limited")
    return TaskResult(counters)


def prices(run: Work | None = None, **options: Any) -> Job:
    """A task `tenero` that runs every five minutes."""
    return Job("tenero", FIVE, run=run, **options)


@dataclass
class StoreUse:
    """The keys that were read one by one, the keys of the rows that were read in ranges, and those of each commit."""

    read: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    committed: list[set[str]] = field(default_factory=list)


class Scheduler:
    """A scheduler under test."""

    def __init__(self, directory: Path, env: SchedulerEnv, clock: VirtualClock, log: CapturedLog) -> None:
        self.env = env
        self.clock = clock
        self.log = log
        self.runtime = Runtime(
            make_objects_file(directory),
            clock=clock,
            logger=log,
            env=env,
            chance=lambda: 0.0,
            on_exhausted=self._exhausted,
            idle_s=None,
        )
        self.namespace: LocalNamespace = self.runtime.namespace("SCHEDULER", SchedulerDO)

    async def _exhausted(self, object_id: LocalObjectId, _error: Exception) -> None:
        await self.namespace.get(object_id).arm()

    def stub(self, name: str = "v1") -> Any:
        return self.namespace.get_by_name(name)

    def client(self, name: str = "v1") -> SchedulerClient:
        return SchedulerClient(self.stub(name))

    async def status(self) -> Status:
        return await self.client().status()

    async def runs(self, task: str | None = None, limit: int = 50) -> list[RunRecord]:
        """The newest runs."""
        return (await self.client().runs(RunFilter(task, limit))).runs

    def reset(self, name: str = "v1") -> None:
        """Reset the object, as the platform does after `ctx.abort()` or a failed commit."""
        self.runtime.live(self.namespace.id_from_name(name)).reset(ObjectReset("The test has reset the object."))

    def watch_store(self) -> StoreUse:
        """Note how the objects' store is used from now on."""
        use, store = StoreUse(), self.runtime.store
        read, read_range, commit = store.read, store.read_range, store.commit

        def noted_read(owner: str, key: str) -> str | None:
            use.read.append(key)
            return read(owner, key)

        def noted_range(*arguments: Any, **options: Any) -> Iterator[tuple[str, str]]:
            for key, value in read_range(*arguments, **options):
                use.listed.append(key)
                yield key, value

        def noted_commit(owner: Any, changes: Any, undo: Any) -> int:
            use.committed.append({*changes.entries})
            return commit(owner, changes, undo)

        vars(store).update(read=noted_read, read_range=noted_range, commit=noted_commit)
        return use

    def entries(self, name: str = "v1") -> dict[str, Any]:
        """Return the entries that the object has stored."""
        rows = self.runtime.store.read_range(self.namespace.id_from_name(name).hex, "", b"")
        return {key: decode(text) for key, text in rows}


@asynccontextmanager
async def scheduler(
    directory: Path,
    *jobs: Job | Task,
    clock: VirtualClock | None = None,
    fetch: Fetch = no_wire,
    quotas: Mapping[str, Quota] | None = None,
    upstreams: Mapping[str, Upstream] | None = None,
    request_jobs: Mapping[str, RequestJob] | None = None,
    db: Database | None = None,
    kv: KV | None = None,
    stored: Mapping[str, Any] | None = None,
    arm: bool = True,
    **settings: Any,
) -> AsyncIterator[Scheduler]:
    """Open a scheduler with Hiro and Tenero, with these quotas and no keys; `upstreams` adds or replaces some.

    `stored` has entries that it finds in its storage.
    """
    clock, log = clock or VirtualClock(), CapturedLog()
    if stored is not None:
        await store_entries(directory, clock, stored)
    tasks = [job.task() if isinstance(job, Job) else job for job in jobs]
    parts = Parts(
        lambda _: tasks,
        lambda _: request_jobs or {},
        lambda _: {**keyless_upstreams(quotas or {}), **(upstreams or {})},
    )

    def stub(name: str) -> Any:
        return made.stub(name)

    stores: dict[str, Any] = {"db": db, "kv": kv}  # None where no task of the test needs them
    platform = Platform(clock=clock, fetch=fetch, logger=log, stub=stub, random=Random(3).random, **stores)
    env = build(platform, Settings(**settings), parts).env
    made = Scheduler(directory, env, clock, log)
    await made.runtime.open()
    try:
        if arm:
            await made.stub().arm()
        yield made
    finally:
        await made.runtime.close()


def keyless_upstreams(quotas: Mapping[str, Quota]) -> dict[str, Upstream]:
    return {
        "hiro": hiro_upstream("https://hiro.test", None, quotas.get("hiro", ROOMY)),
        "tenero": tenero_upstream("https://tenero.test", None, quotas.get("tenero", ROOMY)),
    }


def ended_run(
    number: int, task: str = "tenero", outcome: Outcome = "ok", calls: int = 0, at: int = START_MS
) -> RunRecord:
    return RunRecord(number, task, "alarm", at, 0, at, at + 100, 100, outcome, calls=calls)


def run_entries(*runs: RunRecord) -> dict[str, Any]:
    """The entries of these runs in the storage."""
    return {f"run:{run.id:012}": run.to_json() for run in runs}


class _EntryWriter(DurableObject):
    """Takes the place of the scheduler before it is started."""

    async def write(self, entries: FreeForm) -> None:
        await self.ctx.storage.put(entries)


async def store_entries(directory: Path, clock: VirtualClock, entries: Mapping[str, Any]) -> None:
    """Put entries into the storage of the scheduler that is opened next."""
    runtime = Runtime(make_objects_file(directory), clock=clock, logger=CapturedLog(), env=None)
    namespace = runtime.namespace("SCHEDULER", _EntryWriter)
    await runtime.open()
    try:
        await namespace.get_by_name("v1").write(dict(entries))
    finally:
        await runtime.close()
