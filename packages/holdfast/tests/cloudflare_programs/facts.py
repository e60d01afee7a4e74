"""What an object may do with `ctx` under Cloudflare's names: each method returns what it saw."""

from datetime import datetime, timedelta
from urllib.parse import urlparse

from workers import DurableObject, Response


class Facts(DurableObject):
    async def fetch(self, request):
        if urlparse(request.url).path == "/ping":
            return Response("pong")
        return Response.json({"path": urlparse(request.url).path, "sent": await request.text()}, status=404)

    async def entries(self):
        storage = self.ctx.storage
        await storage.put("before", 1)
        await storage.deleteAll()
        await storage.put("one", "text")
        await storage.put({"a:1": 1, "a:2": 2.5, "a:3": True})
        seen = [await storage.get("one"), await storage.get("none"), await storage.get(["a:1", "a:2", "none"])]
        seen.append(await storage.list({"prefix": "a:", "limit": 2, "reverse": True}))
        seen.append(await storage.list(startAfter="a:1", end="b"))
        seen += [await storage.delete("one"), await storage.delete("one"), await storage.delete(["a:1", "a:2", "x"])]
        await storage.put(7, "seven")
        await storage.sync()
        return [*seen, await storage.get(7), list(await storage.list())]

    async def values(self):
        await self.ctx.storage.put("v", {"bytes": b"\x00\xff", "at": datetime(2026, 1, 2, 3), "pair": (1, 2)})
        value = await self.ctx.storage.get("v")
        return [value.bytes, value["at"].timestamp() == datetime(2026, 1, 2, 3).timestamp(), value.pair]

    async def tables(self):
        sql = self.ctx.storage.sql
        sql.exec("DROP TABLE IF EXISTS t; CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
        written = sql.exec("INSERT INTO t (id, name) VALUES (?, ?), (?, ?)", 1, "one", 2, "two")
        rows = sql.exec("SELECT * FROM t ORDER BY id").toArray()
        cursor = sql.exec("SELECT id, name FROM t ORDER BY id")
        seen = [written.rowsWritten >= 1, rows[0]["name"], rows[1].name, cursor.columnNames, cursor.rowsRead >= 1]
        seen.append([cursor.next().value.id, cursor.next().done, cursor.next().done])
        seen.append([row.id for row in sql.exec("SELECT id FROM t")])
        seen.append(sql.exec("SELECT count(*) AS n FROM t").one().n)
        seen += [sql.exec("SELECT id, id FROM t").raw().toArray().to_py(), sql.exec("SELECT 5").raw().next().value]
        return [*seen, sql.databaseSize > 0]

    async def entries_without_awaiting(self):
        kv = self.ctx.storage.kv
        kv.put("k", {"n": 1})
        return [kv.get("k").n, list(kv.list(prefix="k")), kv.delete("k"), kv.get("k")]

    async def transactions(self):
        storage = self.ctx.storage

        async def work(transaction):
            await transaction.put("t", 1)
            return await transaction.get("t")

        async def undone(transaction):
            await transaction.put("t", 2)
            transaction.rollback()

        def failing():
            storage.sql.exec("CREATE TABLE gone (id)")
            storage.kv.put("t", 3)
            raise ValueError("no")

        result = await storage.transaction(work)
        await storage.transaction(undone)
        try:
            storage.transactionSync(failing)
        except ValueError as error:
            failure = str(error)
        tables = storage.sql.exec("SELECT name FROM sqlite_master WHERE name = 'gone'").toArray()
        return [result, failure, await storage.get("t"), tables]

    async def alarm_times(self):
        storage = self.ctx.storage
        seen = [await storage.getAlarm()]
        await storage.setAlarm(datetime.now() + timedelta(hours=1))
        seen.append(await storage.getAlarm() > 0)
        await storage.setAlarm(9e12 / 2 + 0.5)
        seen.append(await storage.getAlarm())
        await storage.deleteAlarm()
        return [*seen, await storage.getAlarm()]

    async def who(self):
        return [self.ctx.id.toString(), self.ctx.id.name]

    async def alone(self):
        async def work():
            await self.ctx.storage.put("alone", 1)
            return 42

        return await self.ctx.blockConcurrencyWhile(work)

    async def echo(self, value):
        return {"received": value}

    def plain(self, value):
        return value + 1
