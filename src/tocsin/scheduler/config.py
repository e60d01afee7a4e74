"""What the scheduler is told, and what it is given. Validated where it is read (`settings.py`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tocsin import bindings
from tocsin.bindings import Clock, Database, Fetch, Logger
from tocsin.budget.budget import Budget, Quota
from tocsin.scheduler.task import RequestJob, Task
from tocsin.settings import Settings
from tocsin.upstream.client import Upstream
from tocsin.upstream.hiro import hiro_upstream
from tocsin.upstream.log_once import LogOnce
from tocsin.upstream.tenero import tenero_upstream

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """`instance` names the one object that runs; others of the class drain. 0 failures: no breaker."""

    upstreams: Mapping[str, Upstream]
    plans: Mapping[str, Quota]
    instance: str = "v1"
    backoff_max_ms: int = HOUR_MS
    pause_max_ms: int = 7 * 24 * HOUR_MS
    breaker_failures: int = 0
    breaker_pause_ms: int = HOUR_MS
    failing_failures: int = 3  # from so many failures in a row on, a task counts as blind


@dataclass(slots=True)
class ProcessMemory:
    """What outlives an evicted object, but not its process: budgets, and what was said already."""

    budgets: dict[str, Budget] = field(default_factory=dict)
    said: LogOnce = field(default_factory=LogOnce)


@dataclass(slots=True)
class SchedulerEnv:
    """The environment of SchedulerDO: Cloudflare's bindings by name, and what platforms add to them."""

    fetch: Fetch
    clock: Clock
    logger: Logger
    random: Callable[[], float]
    config: SchedulerConfig
    tasks: Sequence[Task]
    request_jobs: Mapping[str, RequestJob] = field(default_factory=dict)
    DB: Database | None = None
    KV: bindings.KV | None = None
    memory: ProcessMemory = field(default_factory=ProcessMemory)


def scheduler_config(settings: Settings) -> SchedulerConfig:
    """The scheduler as the settings want it."""
    return SchedulerConfig(
        upstreams={
            "hiro": hiro_upstream(settings.hiro_api_url, settings.hiro_api_key),
            "tenero": tenero_upstream(settings.tenero_api_url, settings.tenero_api_key),
        },
        plans={
            "hiro": Quota(settings.hiro_plan_second, settings.hiro_plan_minute, settings.hiro_plan_month),
            "tenero": Quota(None, settings.tenero_plan_minute, settings.tenero_plan_month),
        },
        instance=settings.instance,
        breaker_failures=settings.breaker_failures,
    )
