"""Counters, as public programs write them: by RPC, by fetch, with tables; and the Worker in front of them."""

from urllib.parse import parse_qs, urlparse

from js import Date
from pyodide.ffi import to_js
from workers import DurableObject, FetchResponse, Request, Response, WorkerEntrypoint, handler


class Doubles:
    def double(self, n):
        return 2 * n


class Counter(DurableObject, Doubles):
    def __init__(self, state, env):  # an old program: it never calls the constructor of its base
        self.state = state
        self.storage = state.storage
        self.env = env
        self.rung = None

        async def begin():
            self.value = await self.storage.get("value") or 0

        state.blockConcurrencyWhile(begin)

    async def fetch(self, request):
        assert isinstance(request, Request)
        if not await self.storage.getAlarm():
            self.storage.setAlarm(Date.now() + 10**12)
        if urlparse(request.url).path == "/increment":
            self.value += int(parse_qs(urlparse(request.url).query).get("by", ["1"])[0])
            await self.storage.put("value", self.value)
        return Response(str(self.value), headers=[("x-counter", self.state.id.name)])

    async def alarm(self, info):
        await self.storage.put("rung", [info.retryCount, info.get("isRetry"), info["scheduledTime"] > 0])

    async def rang(self):
        return await self.storage.get("rung")

    async def soon(self):
        await self.storage.setAlarm(1)

    async def stop(self):
        self.state.abort("enough")


class Table(DurableObject):
    def __init__(self, ctx, env):
        super().__init__(ctx, env)
        self.sql = self.ctx.storage.sql
        self.sql.exec("CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER)")

    async def increment(self, name):
        query = "INSERT INTO counters VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value"
        return self.sql.exec(query, name).one().value

    async def all(self):
        return to_js([dict(row) for row in self.sql.exec("SELECT * FROM counters ORDER BY name")])


class Leaf(Table):
    async def on_fetch(self, request, env, ctx):
        return Response(f"{request.method} {env.GREETING} {ctx.id.name} {await request.text()}")


class Silent(DurableObject):
    async def fetch(self, request):
        await self.ctx.storage.setAlarm(1)


class Batcher(DurableObject):
    """Collects texts under the numbers of their arrival, and empties itself ten seconds after the first."""

    async def fetch(self, request):
        last = await self.ctx.storage.list(reverse=True, limit=1)
        number = int(next(iter(last), "-1")) + 1
        await self.ctx.storage.put(number, await request.text())
        if number == 0:
            await self.ctx.storage.setAlarm(Date.now() + 10_000)
        return Response(f"{number}")

    async def alarm(self):
        batch = list((await self.ctx.storage.list()).values())
        await self.ctx.storage.deleteAll()
        await self.env.LOG.getByName("all").increment(",".join(batch))


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        stub = self.env.COUNTER.get(self.env.COUNTER.idFromName("a"))
        answer = await stub.fetch(request)
        assert isinstance(answer, FetchResponse)
        return Response.json({"count": int(await answer.text()), "doubled": await stub.double(4)})


@handler
async def on_fetch(request, env):
    return await env.COUNTER.getByName("b").fetch("http://counter/increment?by=3")
