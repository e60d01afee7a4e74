"""The Worker's entry points.

A deployment subclasses them. `parts` lists the tasks and request jobs of its scheduler, if it has its own:

    class Default(Entry): ...
    class SchedulerDO(SchedulerObject):
        parts = Parts(tasks, request_jobs)

Three things wake the scheduler, each sufficient by itself: its alarm, any request (at most once a minute),
and the cron trigger. So it does not depend on visitors, and a lost alarm is set again. `POST /api/deployed`
wakes it at once, as the last step of a deployment. It is harmless at any time and needs no key.
"""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from workers import WorkerEntrypoint

from tocsin import settings
from tocsin.app import App, Parts, build
from tocsin.bindings import JSON, Clock, DurableObject
from tocsin.errors import RequestRefused, TocsinError
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.asgi import respond
from tocsin.platform.cloudflare.clock import CloudflareClock
from tocsin.platform.cloudflare.context import CloudflareContext, keep_alive, object_id
from tocsin.platform.cloudflare.environment import open_env_logger, texts
from tocsin.platform.cloudflare.objects import CloudflareObject
from tocsin.platform.shared.json_values import encode
from tocsin.platform.shared.rpc import read_reply
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.settings import SettingsError
from tocsin.shapes.scheduler import Armed
from tocsin.web.client_limits import ClientLimits
from tocsin.web.operations import Operation, OperationDoc, ResponseDoc, routes_of
from tocsin.web.respond import error_response, json_response, refusal_of
from tocsin.web.static_pages import redirects
from tocsin.worker.worker_app import WorkerApp, open_platform, request_ctx, scheduler_stub

DEPLOYED = "/api/deployed"
WAKE_EVERY_MS = 60_000
DEPLOYED_DOC = OperationDoc(
    operation_id="armScheduler",
    tag="scheduler",
    summary="Arm the scheduler: the last step of a deployment.",
    responses={200: ResponseDoc("when it rings next", (Armed,))},
)


class ArmThrottle:
    """Limits how often this isolate arms the scheduler: once in WAKE_EVERY_MS."""

    def __init__(self) -> None:
        self.armed_at = 0

    def due(self, now: int) -> bool:
        if now - self.armed_at < WAKE_EVERY_MS:
            return False
        self.armed_at = now
        return True


class SchedulerObject(CloudflareObject):
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

    async def pauseUntil(self, until: Any = None) -> Any:  # noqa: N802 - JavaScript's spelling
        return await self._for_javascript("pause_until", until)

    async def resume(self) -> Any:
        return await self._for_javascript("resume")

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
    return [*routes_of([Operation("POST", DEPLOYED, deployed, DEPLOYED_DOC)], limits), *redirects()]


async def _arm_quietly(app: App) -> None:
    """Arm the scheduler. A failure is only logged: the visitor's request must not fail because of it."""
    try:
        await app.scheduler().arm()
    except TocsinError as error:
        app.platform.logger.error("scheduler.not_armed", error=str(error))  # noqa: TRY400 - our Logger has no `exception`


def _unconfigured(error: SettingsError) -> Response:
    line = {"level": "ERROR", "event": "settings.refused", "error": str(error)}
    javascript.js.console.error(json.dumps(line))
    return error_response(RequestRefused(503, "not_configured", str(error)))
