"""SchedulerDO in virtual time, with tasks of the test's own and a wire that is scripted or simulated."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from support.captured_log import CapturedLog
from support.local_store import make_objects_file
from support.virtual_time import VirtualClock
from tocsin.bindings import Fetch, FetchResponse
from tocsin.budget.budget import Quota
from tocsin.platform.local.objects.object_id import LocalObjectId
from tocsin.platform.local.objects.runtime import LocalNamespace, Runtime
from tocsin.scheduler.config import SchedulerConfig, SchedulerEnv
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.task import Outcome, RequestJob, Task, TaskContext
from tocsin.upstream.hiro import hiro_upstream
from tocsin.upstream.tenero import tenero_upstream

MINUTE = 60_000
ROOMY = Quota(minute=10_000, month=10_000_000)
KEYLESS = {
    "hiro": hiro_upstream("https://hiro.test", None),
    "tenero": tenero_upstream("https://tenero.test", None),
}


async def no_wire(url: str, **_options: Any) -> FetchResponse:
    raise AssertionError(f"this test makes no calls, not even to {url}")


@dataclass
class Job:
    """A task for tests: what each run does is put in from outside."""

    name: str
    cadence_ms: int
    slice_ms: int = 4 * MINUTE
    upstream: str = "tenero"
    calls_per_run: float = 1.0
    started: list[int] = field(default_factory=list)
    run: Any = None

    def task(self) -> Task:
        return Task(self.name, self.upstream, self.cadence_ms, self.slice_ms, self.calls_per_run, self._run)

    async def _run(self, context: TaskContext) -> Outcome:
        self.started.append(context.clock.now())
        if self.run is None:
            return Outcome({"succeeded": 1})
        outcome: Outcome = await self.run(context)
        return outcome


class Scheduler:
    """A scheduler under test."""

    def __init__(
        self,
        directory: Path,
        jobs: Sequence[Job],
        clock: VirtualClock,
        fetch: Fetch,
        config: Mapping[str, Any],
        plans: Mapping[str, Quota],
        request_jobs: Mapping[str, RequestJob],
    ) -> None:
        self.clock = clock
        self.log = CapturedLog()
        random = Random(3).random
        self.env = SchedulerEnv(
            fetch=fetch,
            clock=clock,
            logger=self.log,
            random=random,
            config=SchedulerConfig(
                plans={"hiro": ROOMY, "tenero": ROOMY, **plans},
                **{"upstreams": KEYLESS, **config},
            ),
            tasks=[job.task() for job in jobs],
            request_jobs=request_jobs,
        )
        self.runtime = Runtime(
            make_objects_file(directory),
            clock=clock,
            logger=self.log,
            env=self.env,
            chance=lambda: 0.0,
            on_exhausted=self._exhausted,
        )
        self.namespace: LocalNamespace = self.runtime.namespace("SCHEDULER", SchedulerDO)

    async def _exhausted(self, object_id: LocalObjectId, _error: Exception) -> None:
        await self.namespace.get(object_id).arm()

    def stub(self, name: str = "v1") -> Any:
        return self.namespace.get_by_name(name)


@asynccontextmanager
async def scheduler(
    directory: Path,
    *jobs: Job,
    clock: VirtualClock | None = None,
    fetch: Fetch = no_wire,
    plans: Mapping[str, Quota] | None = None,
    request_jobs: Mapping[str, RequestJob] | None = None,
    arm: bool = True,
    **config: Any,
) -> AsyncIterator[Scheduler]:
    made = Scheduler(directory, jobs, clock or VirtualClock(), fetch, config, plans or {}, request_jobs or {})
    await made.runtime.open()
    try:
        if arm:
            await made.stub().arm()
        yield made
    finally:
        await made.runtime.close()
