"""The web application of a Worker: the same as on the local platform, on the deployment's bindings.

It is created at the first request to an isolate and kept: all requests share its rate limits and its cached
responses. It must not keep anything that belongs to one request; see `request_ctx`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from tocsin import __version__, settings
from tocsin.bindings import Clock
from tocsin.competition.rules import rules_of
from tocsin.errors import BindingMissing
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.context import keep_alive
from tocsin.platform.cloudflare.environment import Unusable, open_database, open_env_logger, open_kv, texts
from tocsin.platform.cloudflare.objects import CloudflareNamespace, CloudflareStub
from tocsin.scheduler.health_watch import ask_measured_status, ask_status
from tocsin.scheduler.scheduler_client import SchedulerClient
from tocsin.scheduler.service_health import HealthSnapshot
from tocsin.web.app import create_app
from tocsin.web.deps import InForce, WebDeps, keys_of

_CTX: ContextVar[Any] = ContextVar("ctx")


@contextmanager
def request_ctx(ctx: Any) -> Iterator[None]:
    """While this request is served, its `ctx` keeps background work alive, such as sending log lines."""
    token = _CTX.set(ctx)
    try:
        yield
    finally:
        _CTX.reset(token)


class WorkerApp:
    """The web application of one isolate, created at the first request."""

    def __init__(self) -> None:
        self._opened: tuple[WebDeps, ASGIApp] | None = None

    def open(
        self, env: Any, clock: Clock, routes: Callable[[WebDeps], Sequence[BaseRoute]]
    ) -> tuple[WebDeps, ASGIApp]:
        """The application. `routes` follow the API's own. Raises SettingsError if the settings are wrong."""
        if self._opened is None:
            deps = open_deps(env, clock)
            self._opened = deps, create_app(deps, routes(deps))
        return self._opened


def open_deps(env: Any, clock: Clock) -> WebDeps:
    config = settings.read(texts(env))
    logger = open_env_logger(env, config, clock, lambda work: keep_alive(_CTX.get(), work))
    database, kv = open_database(env, logger), open_kv(env, logger)

    def scheduler() -> SchedulerClient:
        return SchedulerClient(scheduler_stub(env, config.instance))

    unusable = " ".join(str(store) for store in (database, kv) if isinstance(store, Unusable)) or None

    async def health() -> HealthSnapshot:
        """Ask the scheduler itself, because there is no process to watch."""
        status, error = await ask_status(scheduler)
        return HealthSnapshot(None, unusable, status, error)

    async def measured_health() -> HealthSnapshot:
        found, error = await ask_measured_status(scheduler)
        if found is None:
            return HealthSnapshot(None, unusable, None, error)
        return HealthSnapshot(None, unusable, found.status, measures=found.measures)

    return WebDeps(
        scheduler=scheduler,
        kv=kv,
        db=database,
        clock=clock,
        logger=logger,
        in_force=InForce(keys_of(config), rules_of(config)),
        health=health,
        measured_health=measured_health,
        version=__version__,
        instance=config.instance,
        reads_per_minute_max=config.reads_per_minute,
        public_url=config.public_url,
        origins=config.cors_origins,
    )


def scheduler_stub(env: Any, name: str) -> CloudflareStub:
    """A new stub for each call: a stub belongs to the request that made it."""
    binding = getattr(env, "SCHEDULER", None)
    if javascript.kind(binding) != "DurableObjectNamespace":
        raise BindingMissing(
            "The binding SCHEDULER is missing: bind the class SchedulerDO as SCHEDULER in wrangler.jsonc."
        )
    return CloudflareNamespace(binding).get_by_name(name)
