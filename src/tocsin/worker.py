"""Cloudflare: a deployment's platform, its scheduler as a Durable Object, and its requests.

A deployment subclasses the entry points. `parts` lists the tasks and request jobs of its scheduler, if it has its own:

    class Default(Entry): ...
    class SchedulerDO(SchedulerObject):
        parts = Parts(tasks, request_jobs)

Three things wake the scheduler, each sufficient by itself: its alarm, any request (at most once a minute),
and the cron trigger. So it does not depend on visitors, and a lost alarm is set again. `POST /api/deployed`
wakes it at once, as the last step of a deployment. It is harmless at any time and needs no key.

The web application is created at the first request to an isolate and kept: all requests share its rate limits and its
cached responses. It must not keep anything that belongs to one request; see `request_ctx`.

A binding that is missing or of the wrong kind is reported in the log, and raises where it is used. Everything else
works.
"""

import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, TypeVar, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp
from workers import WorkerEntrypoint

from holdfast import types as bindings
from holdfast.cloudflare import javascript
from holdfast.cloudflare.bindings import CloudflareClock, D1Database, WorkersKV
from holdfast.cloudflare.objects import (
    CloudflareContext,
    CloudflareNamespace,
    CloudflareStub,
    OwnObject,
    keep_alive,
    object_id,
)
from holdfast.errors import BindingMissing, HoldfastError
from holdfast.rpc import read_reply
from holdfast.types import JSON, Clock, Database, DurableObject, Level, Logger
from holdfast.values import encode
from tocsin import settings
from tocsin.app import App, Parts, Platform, build
from tocsin.cloudflare.asgi import respond
from tocsin.cloudflare.fetch import CloudflareFetch
from tocsin.cloudflare.logs import RpcLogs, is_logs_rpc, open_logger
from tocsin.errors import RequestRefused
from tocsin.logs import LOG_APP_ID, JsonLogger, LogSender, Redactor
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.types import Armed
from tocsin.settings import Settings, SettingsError
from tocsin.web.limits import ClientLimits
from tocsin.web.pages import redirects
from tocsin.web.response import error_response, json_response, refusal_of
from tocsin.web.route import Operation, ResponseDoc, routes_of

T = TypeVar("T")
_CTX: ContextVar[Any] = ContextVar("ctx")
WAKE_EVERY_MS = 60_000
BACKGROUND_S = 25.0  # of an event, for its log lines; the runtime ends it after 30 s
DEPLOYED = Operation(
    "POST",
    "/api/deployed",
    "armScheduler",
    "Arm the scheduler: the last step of a deployment.",
    responses={200: ResponseDoc("when it rings next", (Armed,))},
)


def texts(env: Any) -> dict[str, str]:
    """The vars and secrets as text. A configuration file may also have numbers and booleans."""
    variables: dict[str, str] = {}
    for name in javascript.to_json(javascript.js.Object.keys(env)):
        value = getattr(env, name)
        if isinstance(value, bool):
            variables[name] = "yes" if value else "no"
        elif isinstance(value, str | int | float):
            variables[name] = str(value)
    return variables


def open_env_logger(
    env: Any, config: Settings, clock: Clock, wait_until: Callable[[Coroutine[Any, Any, None]], None]
) -> JsonLogger:
    """A logger to the console and, where LOGS is bound, to the log service."""
    redact = Redactor(settings.secret_values(config))
    level_min: Level = config.log_level
    console = open_logger(clock, redact, level_min=level_min)
    binding = getattr(env, "LOGS", None)
    if is_logs_rpc(binding):
        sender = LogSender(RpcLogs(binding), LOG_APP_ID, clock, console, wait_until, BACKGROUND_S)
        return open_logger(clock, redact, level_min=level_min, tee=sender.offer)
    if javascript.kind(binding) != "missing":
        console.error("binding.unusable", binding="LOGS", reason=_wrong_kind("LOGS", binding, "the log service"))
    return console


def open_database(env: Any, logger: Logger) -> Database:
    return _opened(env, "DB", "D1Database", "a D1 database", D1Database, logger)


def open_kv(env: Any, logger: Logger) -> bindings.KV:
    return _opened(env, "KV", "KvNamespace", "a KV namespace", WorkersKV, logger)


class Unusable:
    """Stands in for a missing or wrong binding. Any use raises BindingMissing with the fix."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence

    def __getattr__(self, name: str) -> Any:
        raise BindingMissing(self._sentence)


def _opened(env: Any, name: str, js_class: str, expected: str, adapter: Callable[[Any], T], logger: Logger) -> T:
    binding = getattr(env, name, None)
    kind = javascript.kind(binding)
    if kind == js_class:
        return adapter(binding)
    if kind == "missing":
        event = "binding.missing"
        sentence = f"The binding {name} is missing: add {expected} named {name} to the deployment."
    else:
        event, sentence = "binding.unusable", _wrong_kind(name, binding, expected)
    logger.error(event, binding=name, reason=sentence)
    return cast("T", Unusable(sentence))


def _wrong_kind(name: str, binding: Any, expected: str) -> str:
    return f"The binding {name} is {javascript.kind(binding)}, not {expected}: correct it in wrangler.jsonc."


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

    def open(self, env: Any, clock: Clock, routes: Callable[[App], Sequence[BaseRoute]]) -> tuple[App, ASGIApp]:
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


class ArmThrottle:
    """Limits how often this isolate arms the scheduler: once in WAKE_EVERY_MS."""

    def __init__(self) -> None:
        self.armed_at = 0

    def due(self, now: int) -> bool:
        if now - self.armed_at < WAKE_EVERY_MS:
            return False
        self.armed_at = now
        return True


class SchedulerObject(OwnObject):
    """The scheduler as a Durable Object. The methods other than `call` are for callers in JavaScript."""

    parts: ClassVar[Parts] = Parts()
    clock: ClassVar[Clock] = CloudflareClock()

    def _make(self, ctx: Any, env: Any) -> DurableObject:
        config = settings.read(texts(env))
        logger = open_env_logger(env, config, self.clock, lambda work: keep_alive(ctx, work))
        own_id = object_id(ctx, getattr(env, "SCHEDULER", None), config.instance)
        app = build(open_platform(env, config, logger, self.clock), config, self.parts)
        return SchedulerDO(CloudflareContext(ctx, own_id, logger), app.env)

    async def status(self) -> Any:
        return await self._for_javascript("status")

    async def refreshNow(self, task: Any = None) -> Any:  # noqa: N802 - JavaScript's spelling
        return await self._for_javascript("refresh_now", task)

    async def pauseUntil(self, until: Any = None, task: Any = None) -> Any:  # noqa: N802 - JavaScript's spelling
        return await self._for_javascript("pause_until", until, task)

    async def resume(self, task: Any = None) -> Any:
        return await self._for_javascript("resume", task)

    async def _for_javascript(self, method: str, *arguments: JSON) -> Any:
        """A call with JavaScript's values. An error is thrown there as an `Error` with the sentence and a code."""
        try:
            result = read_reply(await self.call(method, encode(list(arguments), "the arguments")))
        except Exception as error:  # noqa: BLE001 - any error goes to the caller
            refusal = refusal_of(error)
            return javascript.rejection(str(error), code=refusal.code, retryable=refusal.retryable)
        return javascript.from_json(result)


class Entry(WorkerEntrypoint):  # type: ignore[misc]  # the SDK has no types outside of the runtime
    """Requests and the cron trigger."""

    clock: ClassVar[Clock] = CloudflareClock()
    throttle: ClassVar = ArmThrottle()
    worker_app: ClassVar = WorkerApp()

    async def fetch(self, request: Any) -> Any:
        ctx, env = javascript.unwrap(self.ctx, "_ctx"), javascript.unwrap(self.env, "_env")
        with request_ctx(ctx):
            try:
                app, web = self.worker_app.open(env, self.clock, extra_routes)
            except SettingsError as error:
                return await respond(_unconfigured(error), request, ctx)
            if self.throttle.due(self.clock.now()):
                keep_alive(ctx, _arm_quietly(app))
            return await respond(web, request, ctx)

    async def scheduled(self, *_event: Any) -> None:
        env = javascript.unwrap(self.env, "_env")
        await scheduler_stub(env, settings.read(texts(env)).instance).arm()


def extra_routes(app: App) -> Sequence[BaseRoute]:
    """The routes that only a deployment has, and redirects to the pages that Cloudflare serves."""

    async def deployed(_request: Request) -> Response:
        return json_response(Armed(app.settings.instance, await app.scheduler().arm()).to_json())

    limits = ClientLimits(app.deps.posts_per_minute_max, app.platform.clock, app.platform.logger)
    return [*routes_of([(DEPLOYED, deployed)], limits), *redirects()]


async def _arm_quietly(app: App) -> None:
    """Arm the scheduler. A failure is only logged: the visitor's request must not fail because of it."""
    try:
        await app.scheduler().arm()
    except HoldfastError as error:
        app.platform.logger.exception("scheduler.not_armed", error=str(error))


def _unconfigured(error: SettingsError) -> Response:
    line = {"level": "ERROR", "event": "settings.refused", "error": str(error)}
    javascript.js.console.error(json.dumps(line))
    return error_response(RequestRefused(503, "not_configured", str(error)))
