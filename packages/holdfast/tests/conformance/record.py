"""Record scenarios on the real runtime: `python -m conformance.record WORKERD --only S`.

It runs `data/worker.js`, in which the objects are scripted by the same ops as in `worker.py`, and adds what they and
their client saw to `data/traces.json`. WORKERD is the program, such as
`tests/cloudflare/node_modules/.bin/workerd` in Tocsin's repository.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import socket
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.compare import quiet
from conformance.replay import Event, Replay
from holdfast.local.clock import SystemClock

DATA = Path(__file__).parent / "data"
CLASSES = ["Obj", "Other", "NoAlarm", "BadCtor", "CtorAlarm", "SlowCtor", "CtorExtend", "Plain", "Bench"]
CONFIG = """
using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "disk", disk = (writable = true, path = "disk")),
    (name = "ext", external = (address = "127.0.0.1:EXT_PORT", http = ())),
  ],
  sockets = [(name = "http", address = "127.0.0.1:PORT", http = (), service = "main")],
);
const worker :Workerd.Worker = (
  modules = [(name = "worker.js", esModule = embed "worker.js")],
  compatibilityDate = "2026-04-01",
  durableObjectNamespaces = [NAMESPACES],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [(name = "EXT", service = "ext"), BINDINGS],
);
"""


class WorkerdProcess:
    """The real runtime as the server of a replay. An instant in a result becomes `{"abs": …}`, as ours are."""

    def __init__(self, program: Path, directory: Path, emit: Callable[[Event], None]) -> None:
        self._program = program.resolve()
        self._directory = directory
        self._emit = emit
        self._port = _free_port()
        self._process: asyncio.subprocess.Process | None = None
        self._ext: asyncio.Server | None = None

    async def start(self) -> None:
        if self._ext is None:
            self._ext = await asyncio.start_server(self._answer, "127.0.0.1", 0)
            self._configure(self._ext.sockets[0].getsockname()[1])
        self._process = await asyncio.create_subprocess_exec(
            *(str(self._program), "serve", "config.capnp"),
            cwd=self._directory,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        self._reading = asyncio.create_task(self._read(self._process))
        while True:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{self._port}/ping")
                return
            await asyncio.sleep(0.05)

    def _configure(self, ext_port: int) -> None:
        (self._directory / "disk").mkdir()
        (self._directory / "worker.js").write_text((DATA / "worker.js").read_text())
        namespaces = [f'(className = "{name}", uniqueKey = "{name}", enableSql = true)' for name in CLASSES]
        bindings = [f'(name = "{name}", durableObjectNamespace = "{name}")' for name in CLASSES]
        values = {"EXT_PORT": str(ext_port), "PORT": str(self._port)}
        values |= {"NAMESPACES": ", ".join(namespaces), "BINDINGS": ", ".join(bindings)}
        text = CONFIG
        for name, value in values.items():
            text = text.replace(name, value)
        (self._directory / "config.capnp").write_text(text)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            text = line.decode().strip()
            if text.startswith("@@"):
                event = json.loads(text[2:])
                del event["seq"]
                self._emit(event)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The network outside, which records what reaches it."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split()[1].decode().removeprefix("http://ext")
                if path.startswith("/delay?ms="):
                    await asyncio.sleep(int(path.removeprefix("/delay?ms=")) / 1000)
                else:
                    self._emit({"at": SystemClock().now(), "src": "net", "ev": "request reached network", "path": path})
                body = f"ext:{path}".encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    def ask(self, request: dict[str, Any]) -> "asyncio.Future[dict[str, Any]]":
        def post() -> Any:
            url, body = f"http://127.0.0.1:{self._port}/", json.dumps(request).encode()
            with urllib.request.urlopen(urllib.request.Request(url, body)) as reply:
                return json.load(reply)

        async def exchange() -> dict[str, Any]:
            sent_at = SystemClock().now()
            with contextlib.suppress(OSError):
                reply: dict[str, Any] = _instants(await asyncio.to_thread(post), sent_at)
                return reply
            return await asyncio.Future()  # the process was killed: nobody will answer

        return asyncio.create_task(exchange())

    async def kill(self, name: str) -> None:
        assert self._process is not None
        self._process.send_signal(signal.Signals[name])
        await self._process.wait()
        await self._reading

    async def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            await self.kill("SIGKILL")
        if self._ext is not None:
            self._ext.close()


def _instants(value: Any, now: int) -> Any:
    if isinstance(value, list):
        return [_instants(item, now) for item in value]
    if isinstance(value, dict):
        return {key: _instants(item, now) for key, item in value.items()}
    return {"abs": value} if type(value) is int and abs(value - now) < 10**9 else value


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def record(scenario: dict[str, Any], program: Path) -> list[Event]:
    run = Replay(scenario, SystemClock())
    with tempfile.TemporaryDirectory() as directory:
        await run.run(WorkerdProcess(program, Path(directory), run.emit))
    return run.events


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.record", description=__doc__)
    parser.add_argument("workerd", type=Path)
    parser.add_argument("--only", default="", help="ids or their prefixes, separated by commas")
    options = parser.parse_args()
    scenarios = json.loads((DATA / "scenarios.json").read_text())
    recorded = json.loads((DATA / "traces.json").read_text())
    for scenario in scenarios:
        if scenario["id"].startswith(tuple(options.only.split(","))):
            events = asyncio.run(record(scenario, options.workerd))
            events = quiet(events) if scenario.get("quiet") else events
            recorded["scenarios"][scenario["id"]] = {"events": events}
            print(f"recorded {scenario['id']}: {len(events)} events")
    (DATA / "traces.json").write_text(as_lines(recorded))
    return 0


def as_lines(recorded: dict[str, Any]) -> str:
    """JSON with a line for each scenario."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(trace)}" for name, trace in recorded["scenarios"].items())
    return f'{{"workerd": {json.dumps(recorded["workerd"])}, "scenarios": {{\n{lines}\n}}}}\n'


if __name__ == "__main__":
    sys.exit(main())
