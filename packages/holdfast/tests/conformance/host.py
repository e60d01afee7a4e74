"""Scripted objects: in this process under virtual time, or in a child process that can be killed.

As a child (`python -m conformance.host DIR`) it reads requests as JSON lines on standard input and
writes events and replies as JSON lines on standard output.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from conformance.worker import CLASSES, World, error_info
from holdfast.local.clock import SystemClock
from holdfast.local.runtime import LocalNamespace, Runtime
from holdfast.local.turns import output_gate
from holdfast.values import encode
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.stores import make_objects_file

Emit = Callable[[dict[str, Any]], None]


class Host:
    """Objects, and the requests that a client can make."""

    def __init__(
        self,
        directory: Path,
        clock: SystemClock,
        emit: Emit,
        spin: Callable[[int], None],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.world = World(emit, clock.now)
        self.world.spin = spin
        self.world.fetch = self._fetch
        self._clock = clock
        self.runtime = Runtime(
            make_objects_file(directory), clock=clock, logger=CapturedLog(), env=self.world, chance=chance
        )
        for cls in CLASSES:
            setattr(self.world, cls.__name__, self.runtime.namespace(cls.__name__, cls))

    async def open(self) -> None:
        await self.runtime.open()

    async def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if "special" in request:
                value = await SPECIALS[request["special"]](self, request["name"], *request["args"])
                return {"ok": True, "value": value}
            stub = self.namespace(request["cls"]).get_by_name(request["name"])
            value = await getattr(stub, request["method"])(*request["args"])
        except Exception as error:  # noqa: BLE001 - recorded
            return {"ok": False, "error": error_info(error)}
        return {"ok": True, "value": value}

    def namespace(self, cls: str) -> LocalNamespace:
        namespace: LocalNamespace = getattr(self.world, cls)
        return namespace

    async def _fetch(self, path: str) -> tuple[int, str]:
        """Stand in for the network: a request that arrives here has left the object."""
        await output_gate()
        if path.startswith("delay?ms="):
            await asyncio.sleep(int(path.removeprefix("delay?ms=")) / 1000)
        else:
            self.world.emit({"src": "net", "ev": "request reached network", "path": "/" + path})
            await asyncio.sleep(0.001)
        return 200, "ext:/" + path


# Probes that run in the caller.


async def _try(work: Callable[[], Any]) -> Any:
    try:
        result = work()
        value = await result if isinstance(result, Awaitable) else result
    except Exception as error:  # noqa: BLE001 - recorded
        return {"err": error_info(error)}
    return {"ok": "undefined" if value is None else value}


async def _ids(host: Host, _name: str) -> Any:
    obj, other = host.namespace("Obj"), host.namespace("Other")
    a, b, c = obj.id_from_name("x"), obj.id_from_name("x"), other.id_from_name("x")
    u1, u2 = obj.new_unique_id(), obj.new_unique_id()
    again = obj.id_from_string(str(a))
    not_an_id: Any = "notanid"
    return {
        "hex": str(a),
        "len": len(str(a)),
        "equals": a == b,
        "sameStr": str(a) == str(b),
        "otherNsDiffers": str(a) != str(c),
        "uniqueDiffer": str(u1) != str(u2),
        "name": a.name,
        "uniqueName": u1.name,
        "fromStringName": again.name,
        "fromStringEquals": again == a,
        "uniqueRoundTrip": await _try(lambda: obj.id_from_string(str(u1)) == u1),
        "wrongNs": await _try(lambda: obj.id_from_string(str(c)).name),
        "garbage": await _try(lambda: obj.id_from_string("zz").name),
        "garbage64": await _try(lambda: obj.id_from_string("0" * 64).name),
        "empty": await _try(lambda: str(obj.id_from_name(""))),
        "getNoId": await _try(lambda: obj.get(not_an_id).name),
        "upper": await _try(lambda: obj.id_from_string(str(a).upper()) == a),
        "stubId": obj.get_by_name("x").id == a,
        "stubName": obj.get_by_name("x").name,
    }


async def _rpc(host: Host, name: str) -> Any:
    stub = host.namespace("Obj").get_by_name(name)
    calls: dict[str, Callable[[], Any]] = {
        "echo": lambda: stub.echo(1),
        "extraArgs": lambda: stub.argc(1, 2, 3),
        "missingMethod": stub.nope,
        "instanceFn": stub.instanceFn,
        "throwCustom": stub.throwCustom,
        "throwSync": stub.throwSync,
        "retUndefined": stub.retUndefined,
        "retNotTarget": stub.retNotTarget,
        "argNotTarget": lambda: stub.echo(object()),
        **{
            "call:" + m: lambda m=m: getattr(stub, m)()  # type: ignore[misc]
            for m in ("alarm", "webSocketMessage", "webSocketClose", "webSocketError", "ctx", "env", "stat")
        },
    }
    return {probe: await _try(call) for probe, call in calls.items()}


async def _order(host: Host, name: str) -> Any:
    stub = host.namespace("Obj").get_by_name(name)
    await asyncio.gather(*[stub.run(f"o{i}", [["log", i]]) for i in range(20)])
    return "done"


async def _broken_stub(host: Host, name: str) -> Any:
    stub = host.namespace("Obj").get_by_name(name)
    new = host.namespace("Obj").get_by_name
    return {
        "before": await _try(lambda: stub.run("a", [["mem"], ["mem"]])),
        "abort": await _try(lambda: stub.run("b", [["put", "pre", 1], ["abort", "my reason"]])),
        "sameStubAfter": await _try(lambda: stub.run("c", [["mem"], ["get", "pre"]])),
        "newStubAfter": await _try(lambda: new(name).run("d", [["mem"], ["get", "pre"]])),
    }


async def _set_reg(host: Host, _name: str, key: str, value: Any) -> Any:
    host.world.registers[key] = value
    return value


SPECIALS: dict[str, Callable[..., Awaitable[Any]]] = {
    "ids": _ids,
    "rpc": _rpc,
    "order": _order,
    "brokenStub": _broken_stub,
    "setReg": _set_reg,
}


def spin_for_real(ms: int) -> None:
    until = time.monotonic() + ms / 1000
    while time.monotonic() < until:
        pass


def _write(record: dict[str, Any]) -> None:
    sys.stdout.write(encode(record, "a record") + "\n")
    sys.stdout.flush()


async def _serve(directory: Path) -> None:
    clock = SystemClock()
    host = Host(directory, clock, lambda e: _write({"event": {"at": clock.now(), **e}}), spin_for_real)
    await host.open()
    _write({"ready": True})
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running: set[asyncio.Task[None]] = set()

    async def reply(number: int, request: dict[str, Any]) -> None:
        _write({"reply": number, "result": await host.handle(request)})

    while line := await reader.readline():
        message = json.loads(line)
        task = asyncio.create_task(reply(message["number"], message["request"]))
        running.add(task)
        task.add_done_callback(running.discard)
    await host.runtime.close()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
