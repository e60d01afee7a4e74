"""The web application of a Worker: the same as locally, on the deployment's bindings.

It is made with the first request to an isolate and kept: its limits per client and its ready answers are
those of all requests. Nothing that belongs to one request may be kept with it; see `request_ctx`.
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
from tocsin.scheduler.health_watch import ask_status
from tocsin.scheduler.readiness import HealthSnapshot
from tocsin.scheduler.scheduler_client import SchedulerClient
from tocsin.web.app import create_app
from tocsin.web.deps import Keys, WebDeps

_CTX: ContextVar[Any] = ContextVar("ctx")


@contextmanager
def request_ctx(ctx: Any) -> Iterator[None]:
    """While this request is served, its `ctx` keeps what is done beside it (log lines on their way)."""
    token = _CTX.set(ctx)
    try:
        yield
    finally:
        _CTX.reset(token)


class WorkerApp:
    """One isolate's web application, once somebody asks for it."""

    def __init__(self) -> None:
        self._opened: tuple[WebDeps, ASGIApp] | None = None

    def open(
        self, env: Any, clock: Clock, routes: Callable[[WebDeps], Sequence[BaseRoute]]
    ) -> tuple[WebDeps, ASGIApp]:
        """The application; `routes` come after the API's own. Raises what is wrong with the settings."""
        if self._opened is None:
            deps = open_deps(env, clock)
            self._opened = deps, create_app(deps, routes(deps))
        return self._opened


def open_deps(env: Any, clock: Clock) -> WebDeps:
    read = settings.read(texts(env))
    logger = open_env_logger(env, read, clock, lambda work: keep_alive(_CTX.get(), work))
    database, kv = open_database(env, logger), open_kv(env, logger)

    def scheduler() -> SchedulerClient:
        return SchedulerClient(scheduler_stub(env, read.instance))

    async def health() -> HealthSnapshot:
        """No process of ours could be stuck, so the scheduler itself is asked."""
        status, problems = await ask_status(scheduler)
        unusable = " ".join(str(store) for store in (database, kv) if isinstance(store, Unusable))
        # Without an answer nothing is known of the alarm; that there is none is what is wrong.
        alarm_at = clock.now() if status is None else status.next_alarm_at
        return HealthSnapshot(None, unusable or None, alarm_at, problems)

    return WebDeps(
        scheduler=scheduler,
        kv=kv,
        db=database,
        clock=clock,
        logger=logger,
        keys=Keys(read.admin_key, read.cron_secret, read.chainhook_secret),
        rules=rules_of(read),
        health=health,
        version=__version__,
        instance=read.instance,
    )


def scheduler_stub(env: Any, name: str) -> CloudflareStub:
    """A new one each time: a stub belongs to the request that made it."""
    binding = getattr(env, "SCHEDULER", None)
    if javascript.kind(binding) != "DurableObjectNamespace":
        raise BindingMissing(
            "The binding SCHEDULER is missing: bind the class SchedulerDO as SCHEDULER in wrangler.jsonc."
        )
    return CloudflareNamespace(binding).get_by_name(name)
