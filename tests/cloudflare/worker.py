"""The Worker under test: the entry points as a deployment has them, and a way to call any object."""

import json
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import urlsplit

from examples import heart_worker
from workers import Response

from cloudflare.tasks_under_test import tasks
from contract.cases import CASES
from contract.contract_do import ContractDO as Contract
from holdfast.cloudflare import javascript
from holdfast.cloudflare import objects as context
from holdfast.cloudflare.bindings import CloudflareClock, D1Database
from holdfast.cloudflare.objects import CloudflareContext, CloudflareStorage, OwnObject, keep_alive, object_id
from holdfast.types import JSON, DurableObject
from tocsin.app import Parts
from tocsin.cloudflare.fetch import CloudflareFetch
from tocsin.rounds.file import file_lines, lines_of, parts_of, read_round_file
from tocsin.rounds.score import score
from tocsin.scheduler.history import day_of, run_key
from tocsin.scheduler.types import RunRecord
from tocsin.settings import Settings
from tocsin.upstream.windows import DAY_MS
from tocsin.worker import Entry, SchedulerObject, open_database, open_env_logger, open_kv

__all__ = ["ContractDO", "Default", "HeartDO", "SchedulerDO"]

HeartDO = heart_worker.HeartDO


class StillClock(CloudflareClock):
    """The runtime's own clock, until a test sets it: then it stands still."""

    at: int | None = None

    def now(self) -> int:
        return super().now() if self.at is None else self.at

    def monotonic(self) -> float:
        return super().monotonic() if self.at is None else self.at / 1000


CLOCK = StillClock()


class CountingStorage(CloudflareStorage):
    """Counts the entries that it reads: each is a row that Cloudflare bills."""

    rows_read = 0

    def list(self, **options: Any) -> Any:
        found: Any = super().list(**options)
        self.rows_read += len(found.value)
        return found

    def _read(self, key: str) -> str | None:
        self.rows_read += 1
        return super()._read(key)


context.CloudflareStorage = CountingStorage  # type: ignore[misc]  # for every object of this Worker


class SchedulerDO(SchedulerObject):
    """The scheduler, and a way to load a state from another platform."""

    parts = Parts(tasks)
    clock = CLOCK
    called: ClassVar[list[str]] = []

    async def call(self, method: str, arguments: str) -> str:
        self.called.append(method)
        return await super().call(method, arguments)

    async def rows_read(self) -> int:
        """Count since this instance was created."""
        assert self._object is not None
        storage: Any = self._object.ctx.storage
        return int(storage.rows_read)

    async def load_history(self, runs: int, days: int) -> None:
        """Store this many runs of the last 30 days, and the totals of this many days."""
        storage, now = CloudflareStorage(self._js_ctx.storage), self.clock.now()
        for number in range(1, runs + 1):
            at = now - 30 * DAY_MS * (runs - number) // runs
            run = RunRecord(number, "feed", "alarm", at, 0, at, at + 900, 900, "ok", calls=2)
            storage.put(run_key(number), run.to_json())
        storage.put({f"day:{day}": {"day": day} for day in (day_of(now - n * DAY_MS) for n in range(days))})
        storage.put({"scheduler": {}, "task:feed": {"lastRun": runs}})

    async def load(self, entries: str, alarm_at: int) -> None:
        storage = CloudflareStorage(self._js_ctx.storage)
        await storage.delete_all()
        storage.put(json.loads(entries))
        await storage.set_alarm(alarm_at)
        self._object = self._make(self._js_ctx, javascript.unwrap(self.env, "_env"))


class ContractDO(OwnObject):
    """The object of the contract suite, as it also runs on the local platform."""

    subrequests_max = 250  # so that a test need not make a thousand

    def _make(self, ctx: Any, env: Any) -> DurableObject:
        clock = CloudflareClock()
        logger = open_env_logger(env, Settings(), clock, lambda work: keep_alive(ctx, work))
        given = SimpleNamespace(
            clock=clock, fetch=CloudflareFetch(), cases=CASES, DB=open_database(env, logger), KV=open_kv(env, logger)
        )
        named = object_id(ctx, getattr(env, "CONTRACT", None), "")
        return Contract(CloudflareContext(ctx, named, logger), given)


class Default(Entry):
    """The entry point, and routes for tests."""

    clock = CLOCK

    async def fetch(self, request: Any) -> Any:
        path = urlsplit(request.url).path
        if path == "/cdn-cgi/handler/scheduled":  # as `wrangler dev` has it
            await self.scheduled(None)
            return Response("ok")
        if path == "/_site":
            return await javascript.unwrap(self.env, "_env").SITE.fetch(request.js_object)
        if path == "/_test":
            asked = json.loads(await request.text())
            done = getattr(self, f"_{asked.pop('do')}")(javascript.unwrap(self.env, "_env"), **asked)
            return Response(json.dumps(await done))
        return await super().fetch(request)

    async def _call(self, env: Any, namespace: str, name: str, method: str, arguments: list[JSON]) -> Any:
        return await _stub(env, namespace, name).call(method, json.dumps(arguments))

    async def _native(self, env: Any, namespace: str, name: str, method: str, arguments: list[JSON]) -> Any:
        """A method of the object's class itself, with JavaScript's values."""
        return javascript.to_json(await getattr(_stub(env, namespace, name), method)(*arguments))

    async def _trigger_example(self, _env: Any) -> None:
        """The cron trigger of examples/heart_worker.py."""
        await heart_worker.Default(self.ctx, self.env).scheduled(None)

    async def _logs(self, env: Any) -> Any:
        return javascript.to_json(await env.LOGS.query())

    async def _scheduler_calls(self, _env: Any) -> list[str]:
        """The methods that were called since the last time."""
        called = [*SchedulerDO.called]
        SchedulerDO.called.clear()
        return called

    async def _recount(self, _env: Any, files: list[str]) -> list[str]:
        read = [read_round_file(lines_of(file)).inputs for file in files]
        return ["".join(parts_of(file_lines(inputs, score(inputs)))) for inputs in read]

    async def _clock(self, _env: Any, at: int | None) -> None:
        CLOCK.at = at

    async def _subrequests(self, _env: Any, limit: int) -> None:
        SchedulerDO.subrequests_max = limit

    async def _sql(self, env: Any, batch: list[tuple[str, list[Any]]]) -> Any:
        """The rows, and what D1 bills for them, of each statement."""
        database = D1Database(env.DB)
        found = await database.batch([database.prepare(sql).bind(*values) for sql, values in batch])
        return [[one.results, one.meta.rows_read, one.meta.rows_written] for one in found]


def _stub(env: Any, namespace: str, name: str) -> Any:
    binding = getattr(env, namespace)
    return binding.get(binding.idFromName(name))
