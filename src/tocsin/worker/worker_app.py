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

from tocsin import settings
from tocsin.app import App, Platform, build
from tocsin.bindings import Clock, Logger
from tocsin.errors import BindingMissing
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.context import keep_alive
from tocsin.platform.cloudflare.environment import Unusable, open_database, open_env_logger, open_kv, texts
from tocsin.platform.cloudflare.fetch import CloudflareFetch
from tocsin.platform.cloudflare.objects import CloudflareNamespace, CloudflareStub
from tocsin.platform.shared.redaction import Redactor
from tocsin.settings import Settings

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
        self._opened: tuple[App, ASGIApp] | None = None

    def open(
        self, env: Any, clock: Clock, routes: Callable[[App], Sequence[BaseRoute]]
    ) -> tuple[App, ASGIApp]:
        """The application. `routes` follow the API's own. Raises SettingsError if the settings are wrong."""
        if self._opened is None:
            config = settings.read(texts(env))
            logger = open_env_logger(env, config, clock, lambda work: keep_alive(_CTX.get(), work))
            app = build(open_platform(env, config, logger, clock), config)
            self._opened = app, app.web(routes(app))
        return self._opened


def open_platform(env: Any, config: Settings, logger: Logger, clock: Clock) -> Platform:
    """The platform of a deployment: its bindings."""
    database, kv = open_database(env, logger), open_kv(env, logger)
    return Platform(
        clock=clock,
        fetch=CloudflareFetch(),
        logger=logger,
        db=database,
        kv=kv,
        stub=lambda name: scheduler_stub(env, name),
        mask=Redactor(settings.secret_values(config)).text,
        unusable=" ".join(str(store) for store in (database, kv) if isinstance(store, Unusable)) or None,
    )


def scheduler_stub(env: Any, name: str) -> CloudflareStub:
    """A new stub for each call: a stub belongs to the request that made it."""
    binding = getattr(env, "SCHEDULER", None)
    if javascript.kind(binding) != "DurableObjectNamespace":
        raise BindingMissing(
            "The binding SCHEDULER is missing: bind the class SchedulerDO as SCHEDULER in wrangler.jsonc."
        )
    return CloudflareNamespace(binding).get_by_name(name)
