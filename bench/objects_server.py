"""An HTTP server in front of objects on Tocsin's runtime, with the same routes as bench/workerd/worker.js."""

import argparse
import asyncio
import gc
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import uvicorn
import uvloop
from null_logger import NullLogger

from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import DataDir
from holdfast.local.migrations import load
from holdfast.local.object_store import OBJECT_MIGRATIONS
from holdfast.local.open_objects import OBJECTS_FILE
from holdfast.local.runtime import LocalNamespace, Runtime
from holdfast.storage import SqlStorage
from holdfast.types import JSON, AlarmInfo, DurableObject

lateness: list[float] = []
first_alarm: list[float] = []


class Bench(DurableObject):
    """The object that the requests call."""

    has_table = False

    async def read_one(self) -> JSON:
        return await self.ctx.storage.get("k") or 0

    async def write_one(self) -> int:
        await self.ctx.storage.put("k", time.time_ns())
        return 1

    async def read_row(self) -> JSON:
        rows = self._table().exec("SELECT v FROM t WHERE id = 1").all()
        return rows[0]["v"] if rows else 0

    async def write_row(self) -> int:
        self._table().exec("INSERT OR REPLACE INTO t VALUES (1, ?)", time.time_ns() // 1_000_000)
        return 1

    def _table(self) -> SqlStorage:
        sql = self.ctx.storage.sql
        if not self.has_table:
            sql.exec("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v INTEGER)")
            self.has_table = True
        return sql

    async def arm(self, at: int) -> None:
        await self.ctx.storage.set_alarm(at)

    async def alarm(self, info: AlarmInfo) -> None:
        now = time.time() * 1000
        lateness.append(now - info.scheduled_time)
        if not first_alarm:
            first_alarm.append(now)


class App:
    """Plain ASGI, as bench/workerd/worker.js is a plain handler: routing is not measured."""

    def __init__(self, runtime: Runtime, namespace: LocalNamespace) -> None:
        self._runtime = runtime
        self._namespace = namespace

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        _, first, *rest = scope["path"].split("/")
        if first == "b":
            method, name = rest
            body = str(await getattr(self._namespace.get_by_name(name), method)()).encode()
        elif first == "arm":
            body = await self._arm(dict(parse_qsl(scope["query_string"].decode())))
        else:
            body = json.dumps({"lateness": lateness, "firstAlarm": first_alarm}).encode()
        headers = [(b"content-length", str(len(body)).encode()), (b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _arm(self, query: dict[str, str]) -> bytes:
        n, at, within = (int(query.get(k, 0)) for k in ("n", "at", "within"))
        lateness.clear()
        for i in range(n):
            await self._namespace.get_by_name(f"alarm{i}").arm(at + i * within // n)
        return b"armed"


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dir", type=Path, required=True)
    options = parser.parse_args()
    clock = SystemClock()
    data = DataDir(options.dir, {OBJECTS_FILE: load(OBJECT_MIGRATIONS)}, now=clock.now(), logger=NullLogger())
    runtime = Runtime(options.dir / OBJECTS_FILE, clock=clock, logger=NullLogger(), env=None)
    namespace = runtime.namespace("BENCH", Bench)
    await runtime.open()
    gc.freeze()
    config = uvicorn.Config(
        App(runtime, namespace),
        port=options.port,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        lifespan="off",
    )
    await uvicorn.Server(config).serve()
    await runtime.close()
    data.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
