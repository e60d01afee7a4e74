"""Runs the client of a scenario and records the events, in the format of the recordings."""

import asyncio
import contextlib
import itertools
import json
import math
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from conformance.host import Host, spin_for_real
from holdfast.local.clock import SystemClock
from holdfast.testing.virtual_time import VirtualClock, VirtualLoop, run_virtual

Scenario = dict[str, Any]
Event = dict[str, Any]
START_LIMIT_S = 30.0


class Server(Protocol):
    """The process with the objects."""

    async def start(self) -> None: ...

    def ask(self, request: dict[str, Any]) -> "asyncio.Future[dict[str, Any]]":
        """Send a request at once. The future holds the reply."""

    async def kill(self, name: str) -> None: ...
    async def stop(self) -> None: ...


class SameProcess:
    """Objects in this process. It cannot be killed, but time can be virtual."""

    def __init__(
        self, directory: Path, clock: SystemClock, emit: Callable[[Event], None], chances: Iterator[float]
    ) -> None:
        loop = asyncio.get_running_loop()
        virtual = isinstance(loop, VirtualLoop)

        def spin(ms: int) -> None:
            if isinstance(loop, VirtualLoop):
                loop.advance(ms / 1000)

        self._host = Host(
            directory,
            clock,
            lambda e: emit({"at": clock.now(), **e}),
            spin if virtual else spin_for_real,
            lambda: next(chances),
        )

    async def start(self) -> None:
        await self._host.open()

    def ask(self, request: dict[str, Any]) -> "asyncio.Future[dict[str, Any]]":
        return asyncio.create_task(self._host.handle(request))

    async def kill(self, name: str) -> None:
        raise NotImplementedError(f"{name}: restart scenarios run in a child process")

    async def stop(self) -> None:
        await self._host.runtime.close()


class ChildProcess:
    """Objects in a separate process, in real time, ended by a real signal."""

    def __init__(self, directory: Path, emit: Callable[[Event], None]) -> None:
        self._directory = directory
        self._emit = emit
        self._process: asyncio.subprocess.Process | None = None
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._count = 0

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "conformance.host", str(self._directory)),
            cwd=Path(__file__).parents[1],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read(self._process, ready))
        async with asyncio.timeout(START_LIMIT_S):
            await ready.wait()

    async def _read(self, process: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            record = json.loads(line)
            if "event" in record:
                self._emit(record["event"])
            elif "reply" in record:
                self._replies.pop(record["reply"]).set_result(record["result"])
            else:
                ready.set()

    def ask(self, request: dict[str, Any]) -> "asyncio.Future[dict[str, Any]]":
        assert self._process is not None
        assert self._process.stdin is not None
        self._count += 1
        reply = self._replies[self._count] = asyncio.get_running_loop().create_future()
        message = {"number": self._count, "request": request}
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        return reply

    async def kill(self, name: str) -> None:
        assert self._process is not None
        self._process.send_signal(signal.Signals[name])
        await self._process.wait()
        await self._reading

    async def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            await self.kill("SIGKILL")


class Replay:
    """One scenario against one server."""

    def __init__(self, scenario: Scenario, clock: SystemClock) -> None:
        self._scenario = scenario
        self._name: str = scenario["id"]
        self._cls: str = scenario.get("cls", "Obj")
        self._clock = clock
        self._began_at = clock.now()
        self._incarnation = 1
        self._alarms_done = 0
        self._alarm_done = asyncio.Event()
        self._pending: list[asyncio.Task[None]] = []
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        """Record an event of the objects."""
        at = event.pop("at")
        if event.pop("obj", self._name) != self._name:
            return
        record: Event = {"t": at - self._began_at, "src": "do", **_relative(event, self._began_at)}
        if record["src"] == "do":
            record["inc"] = self._incarnation
        self.events.append(record)
        if event["ev"] in {"alarm.end", "alarm.throw"}:
            self._alarms_done += 1
            self._alarm_done.set()

    def _record(self, ev: str, **fields: Any) -> None:
        t = self._clock.now() - self._began_at
        self.events.append({"t": t, "src": "client", "ev": ev, **fields})

    async def run(self, server: Server) -> None:
        await server.start()
        self._began_at = self._clock.now()
        try:
            for step, *a in self._scenario["client"]:
                await self._step(server, step, a)
        finally:
            await server.stop()

    async def _step(self, server: Server, step: str, a: list[Any]) -> None:
        match step:
            case "sleep":
                await asyncio.sleep(a[0] / 1000)
            case "alarms":
                await self._wait_for_alarms(*a)
            case "join":
                await asyncio.gather(*self._pending)
            case "kill":
                name = a[0] if a else "SIGKILL"
                self._record("kill", sig=name)
                await server.kill(name)
            case "start":
                self._record("start")
                self._incarnation += 1
                await server.start()
                self._record("ready")
            case "runGone":
                label, ops, ms = a
                self._record("send", label=label)
                reply = server.ask(self._request("run", [label, ops]))
                await asyncio.wait([reply], timeout=ms / 1000)
                reply.cancel()
                self._record("client closed connection", label=label)
            case _:
                label, request = self._call(step, a)
                self._record("send", label=label)
                exchange = asyncio.create_task(self._receive(label, server.ask(request)))
                if step.endswith("A"):
                    self._pending.append(exchange)
                else:
                    await exchange

    def _call(self, step: str, a: list[Any]) -> tuple[str, dict[str, Any]]:
        match step:
            case "plan":
                return "plan", self._request("plan", [a[0]])
            case "run" | "runA":
                return a[0], self._request("run", [a[0], a[1]])
            case "call" | "callA":
                return a[0], {"name": self._name, "args": [], **a[1]}
            case "special":
                return a[0], {"special": a[1], "name": self._name, "args": a[2]}
        raise ValueError(f"unknown step {step!r}")

    def _request(self, method: str, arguments: list[Any]) -> dict[str, Any]:
        return {"cls": self._cls, "name": self._name, "method": method, "args": arguments}

    async def _receive(self, label: str, reply: "asyncio.Future[dict[str, Any]]") -> None:
        self._record("recv", label=label, result=_relative(await reply, self._began_at))

    async def _wait_for_alarms(self, want: int, timeout_ms: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                while self._alarms_done < want:
                    self._alarm_done.clear()
                    await self._alarm_done.wait()
        self._record("waited.alarms", want=want, got=self._alarms_done)


def _relative(value: Any, began_at: int) -> Any:
    """Instants as milliseconds since the start of the scenario, as in the recordings."""
    if isinstance(value, list):
        return [_relative(item, began_at) for item in value]
    if isinstance(value, dict):
        if value.keys() == {"abs"}:
            return {"rel": value["abs"] - began_at}
        return {
            k.removesuffix("Abs") + "Rel" if k.endswith("Abs") else k: (v if v is None else v - began_at)
            if k.endswith("Abs")
            else _relative(v, began_at)
            for k, v in value.items()
        }
    return value


def replay(scenario: Scenario, recording: list[Event], *, real_time: bool = False) -> list[Event]:
    """Run one scenario in a new directory. Returns its events.

    Random delays are taken from the recording, because they may decide whether a retry happens before or after
    the client's next step.
    """
    with tempfile.TemporaryDirectory() as name:
        directory, chances = Path(name), itertools.chain(_chances(recording), itertools.repeat(0.5))
        if scenario.get("restart"):
            return asyncio.run(_replay(scenario, SystemClock(), lambda e, _c: ChildProcess(directory, e)))
        if real_time:
            return asyncio.run(_replay(scenario, SystemClock(), lambda e, c: SameProcess(directory, c, e, chances)))
        return run_virtual(_replay(scenario, VirtualClock(), lambda e, c: SameProcess(directory, c, e, chances)))


async def _replay(
    scenario: Scenario, clock: SystemClock, make: Callable[[Callable[[Event], None], SystemClock], Server]
) -> list[Event]:
    run = Replay(scenario, clock)
    await run.run(make(run.emit, clock))
    return run.events


def _chances(recording: list[Event]) -> Iterator[float]:
    """The jitter of the recorded retries, as shares of the longest jitter."""
    objects = [event for event in recording if event["src"] == "do"]
    for before, event in itertools.pairwise(objects):
        wait_s = (event["t"] - before["t"]) / 2000
        retried = event["ev"] in {"constructor", "alarm.start"} and "label" not in event
        if retried and wait_s >= 1 and before["ev"] in {"alarm.throw", "alarm.end", "abort", "ctor.throw"}:
            yield min((wait_s / 2 ** math.floor(math.log2(wait_s)) - 1) / 0.25, 0.999)
