"""What the platforms pass to the scheduler."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast import types as bindings
from holdfast.types import Clock, Database, Logger
from tocsin.fetch import Fetch
from tocsin.scheduler.task import RequestJob, Task
from tocsin.settings import Settings
from tocsin.upstream.client import Upstream
from tocsin.upstream.lookups import LookUps


@dataclass(slots=True)
class SchedulerEnv:
    """The environment of SchedulerDO: Cloudflare's bindings by name, and what the platforms add to them.

    `mask` removes the secrets from a text that leaves the process.
    """

    fetch: Fetch
    clock: Clock
    logger: Logger
    random: Callable[[], float]
    settings: Settings
    upstreams: Mapping[str, Upstream]
    tasks: Sequence[Task]
    request_jobs: Mapping[str, RequestJob] = field(default_factory=dict)
    job_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    DB: Database | None = None
    KV: bindings.KV | None = None
    reported: set[str] = field(default_factory=set)  # sentences that this process has logged already
    look_ups: LookUps = field(default_factory=LookUps)
    mask: Callable[[str], str] = str
