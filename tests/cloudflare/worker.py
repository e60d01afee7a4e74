"""The Worker under test: the entry points as a deployment has them, and a way to call any object."""

import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from workers import Response

from cloudflare.tasks_under_test import tasks
from contract.cases import CASES
from contract.contract_do import ContractDO as Contract
from tocsin.bindings import JSON
from tocsin.durable_object import DurableObject
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.clock import CloudflareClock
from tocsin.platform.cloudflare.context import CloudflareContext, keep_alive, object_id
from tocsin.platform.cloudflare.environment import SchedulerParts, open_database, open_kv, open_logger
from tocsin.platform.cloudflare.fetch import CloudflareFetch
from tocsin.platform.cloudflare.objects import CloudflareObject
from tocsin.settings import Settings
from tocsin.worker.entry import Entry, SchedulerObject

__all__ = ["ContractDO", "Default", "SchedulerDO"]


class SchedulerDO(SchedulerObject):
    parts = SchedulerParts(tasks, lambda _settings: {})


class ContractDO(CloudflareObject):
    """The object of the contract suite, as it also runs on the local platform."""

    subrequests_max = 250  # so that a test need not make a thousand

    def _make(self, ctx: Any, env: Any) -> DurableObject:
        clock = CloudflareClock()
        logger = open_logger(env, Settings(), clock, lambda work: keep_alive(ctx, work))
        given = SimpleNamespace(
            clock=clock,
            fetch=CloudflareFetch(),
            cases=CASES,
            DB=open_database(env, logger),
            KV=open_kv(env, logger),
        )
        named = object_id(ctx, getattr(env, "CONTRACT", None), "")
        return Contract(CloudflareContext(ctx, named, logger), given)


class Default(Entry):
    """The entry point, and routes for tests."""

    async def fetch(self, request: Any) -> Any:
        path = urlsplit(request.url).path
        if path == "/cdn-cgi/handler/scheduled":  # as `wrangler dev` has it
            await self.scheduled(None)
            return Response("ok")
        if path == "/_test":
            asked = json.loads(await request.text())
            return Response(json.dumps(await self._do(**asked)))
        return await super().fetch(request)

    async def _do(self, do: str, **asked: JSON) -> JSON:
        env = javascript.beneath(self.env, "_env")
        if do == "logs":
            return javascript.to_json(await env.LOGS.query())
        namespace = getattr(env, str(asked["namespace"]))
        stub = namespace.get(namespace.idFromName(asked["name"]))
        if do == "native":  # as a caller in JavaScript would
            return javascript.to_json(await getattr(stub, str(asked["method"]))(*asked["arguments"]))
        return await stub.call(asked["method"], json.dumps(asked["arguments"]))
