"""What the platforms pass to the scheduler, and what an operator can set. `settings.py` validates the settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast import types as bindings
from holdfast.types import Clock, Database, Logger
from tocsin.fetch import Fetch
from tocsin.scheduler.task import RequestJob, Task
from tocsin.settings import Settings
from tocsin.upstream.client import Upstream
from tocsin.upstream.lookups import LookUps
from tocsin.upstream.windows import HOUR_MS


@dataclass(frozen=True, slots=True)
class AlertTarget:
    """Where alerts are sent, and the name of the service in them. The URL and the key are secret."""

    url: str = field(repr=False)
    format: str = "json"
    key: str | None = field(default=None, repr=False)
    name: str = "tocsin"


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """`instance` names the active object; other objects of the class drain. 0 `breaker_failures`: no breaker."""

    instance: str = "v1"
    backoff_max_ms: int = HOUR_MS
    pause_max_ms: int = 7 * 24 * HOUR_MS
    breaker_failures: int = 0
    breaker_pause_ms: int = HOUR_MS
    failing_after: int = 3  # consecutive failures that make a task count as failing
    alert_target: AlertTarget | None = None
    heartbeat_url: str | None = field(default=None, repr=False)


@dataclass(slots=True)
class ProcessMemory:
    """State that outlives an evicted or reset object, but not its process."""

    begun_runs: set[int] = field(default_factory=set)  # started by this process and not ended
    reported: set[str] = field(default_factory=set)  # sentences that are already logged


@dataclass(slots=True)
class SchedulerEnv:
    """The environment of SchedulerDO: Cloudflare's bindings by name, and what the platforms add to them.

    `mask` removes the secrets from a text that leaves the process.
    """

    fetch: Fetch
    clock: Clock
    logger: Logger
    random: Callable[[], float]
    config: SchedulerConfig
    upstreams: Mapping[str, Upstream]
    tasks: Sequence[Task]
    request_jobs: Mapping[str, RequestJob] = field(default_factory=dict)
    job_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    DB: Database | None = None
    KV: bindings.KV | None = None
    memory: ProcessMemory = field(default_factory=ProcessMemory)
    look_ups: LookUps = field(default_factory=LookUps)
    mask: Callable[[str], str] = str


def scheduler_config(settings: Settings) -> SchedulerConfig:
    """Build the scheduler's configuration from the settings."""
    target = None
    if settings.alert_url is not None:
        target = AlertTarget(settings.alert_url, settings.alert_format, settings.alert_key, settings.alert_name)
    return SchedulerConfig(
        instance=settings.instance,
        breaker_failures=settings.breaker_failures,
        alert_target=target,
        heartbeat_url=settings.heartbeat_url,
    )
