"""The Worker's entry points.

A deployment names them and says what its scheduler does:

    class Default(Entry): ...
    class SchedulerDO(SchedulerObject):
        parts = SchedulerParts(tasks, request_jobs)

Three things wake the scheduler, each enough by itself: its own alarm; any request, at most once a minute;
the cron trigger. So none is needed of a visitor, and a lost alarm heals. `POST /api/deployed` wakes it at
once, for the end of a deployment; it is harmless at any time and needs no key.
"""

import json
from collections.abc import Coroutine
from typing import Any, ClassVar
from urllib.parse import urlsplit

from workers import Response, WorkerEntrypoint

from tocsin import settings
from tocsin.bindings import JSON
from tocsin.durable_object import DurableObject
from tocsin.errors import BindingMissing, TocsinError
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.clock import CloudflareClock
from tocsin.platform.cloudflare.context import CloudflareContext, keep_alive, object_id
from tocsin.platform.cloudflare.environment import SchedulerParts, open_logger, scheduler_env, texts
from tocsin.platform.cloudflare.objects import CloudflareNamespace, CloudflareObject, CloudflareStub
from tocsin.scheduler.scheduler_do import SchedulerDO

DEPLOYED = "/api/deployed"
WAKE_EVERY_MS = 60_000


class Wake:
    """When this isolate last made sure that the scheduler is armed."""

    def __init__(self) -> None:
        self.at = 0

    def due(self, now: int) -> bool:
        if now - self.at < WAKE_EVERY_MS:
            return False
        self.at = now
        return True


class SchedulerObject(CloudflareObject):
    """The scheduler as a Durable Object. The methods beside `call` are for callers in JavaScript."""

    parts: ClassVar[SchedulerParts]

    def _make(self, ctx: Any, env: Any) -> DurableObject:
        read = settings.read(texts(env))
        clock = CloudflareClock()
        logger = open_logger(env, read, clock, lambda work: keep_alive(ctx, work))
        named = object_id(ctx, getattr(env, "SCHEDULER", None), read.instance)
        return SchedulerDO(
            CloudflareContext(ctx, named, logger), scheduler_env(env, read, logger, clock, self.parts)
        )

    async def status(self) -> Any:
        return await self._for_javascript("status")

    async def refresh_now(self, task: str) -> Any:
        return await self._for_javascript("refresh_now", task)

    async def pause_until(self, until: int) -> Any:
        return await self._for_javascript("pause_until", until)

    async def resume(self) -> Any:
        return await self._for_javascript("resume")

    async def arm(self) -> Any:
        return await self._for_javascript("arm")


class Entry(WorkerEntrypoint):  # type: ignore[misc]  # the SDK has no types outside of the runtime
    """Requests and the cron trigger."""

    wake: ClassVar = Wake()

    async def fetch(self, request: Any) -> Any:
        ctx, env = javascript.beneath(self.ctx, "_ctx"), javascript.beneath(self.env, "_env")
        path = urlsplit(request.url).path
        if path == DEPLOYED and str(request.method) == "POST":
            return await _told(_arm(env))
        if self.wake.due(CloudflareClock().now()):
            keep_alive(ctx, _arm_quietly(env))
        return _refused(404, "not_found", f"There is nothing at {path}.")

    async def scheduled(self, *_event: Any) -> None:
        await _arm(javascript.beneath(self.env, "_env"))


def scheduler_stub(env: Any, name: str) -> CloudflareStub:
    binding = getattr(env, "SCHEDULER", None)
    if javascript.kind(binding) != "DurableObjectNamespace":
        raise BindingMissing(
            "The binding SCHEDULER is missing: bind the class SchedulerDO as SCHEDULER in wrangler.jsonc."
        )
    return CloudflareNamespace(binding).get_by_name(name)


async def _arm(env: Any) -> JSON:
    name = settings.read(texts(env)).instance
    return {"name": name, "nextAlarmAt": await scheduler_stub(env, name).arm()}


async def _arm_quietly(env: Any) -> None:
    """For a visitor's request, which must not fail for it; the next wake-up tries again."""
    try:
        await _arm(env)
    except TocsinError as error:
        line = {"level": "ERROR", "event": "scheduler.not_armed", "error": str(error)}
        javascript.js.console.error(json.dumps(line))


async def _told(work: Coroutine[Any, Any, JSON]) -> Any:
    try:
        return Response.from_json(await work)
    except TocsinError as error:
        return _refused(503, "scheduler_unavailable", str(error), retryable=True)


def _refused(status: int, code: str, sentence: str, *, retryable: bool = False) -> Any:
    body = {"error": sentence, "code": code, "retryable": retryable}
    return Response.from_json(body, status=status)
