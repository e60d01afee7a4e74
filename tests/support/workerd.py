"""The real workerd with our Worker in it: started by a test, called over loopback, killed with -9."""

import fcntl
import functools
import hashlib
import http.client
import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from string import Template
from typing import Any, Literal, TypeAlias
from urllib.request import urlopen

from holdfast.local.migrations import load
from holdfast.rpc import read_reply
from holdfast.types import JSON
from support.asgi import Answer
from support.missing import NPM, require
from support.patience import PATIENCE_S
from tocsin.swaps import COMPETITION_MIGRATIONS

Bound: TypeAlias = Literal["well", "wrong", "not"]

TESTS = Path(__file__).parents[1]
RIG = TESTS / "cloudflare"
MODULES = RIG / "node_modules"
WHEELS = RIG / "wheels"
SDK = "workers_runtime_sdk-*.whl"
DEPLOYMENT = TESTS.parent / "deploy" / "cloudflare"
EXAMPLES = TESTS.parent / "examples"
HOLDFAST = TESTS.parent / "packages" / "holdfast"
OBJECTS = (
    '(name = "SCHEDULER", durableObjectNamespace = "SchedulerDO")',
    '(name = "CONTRACT", durableObjectNamespace = "ContractDO")',
    '(name = "HEART", durableObjectNamespace = "HeartDO")',
)
BINDINGS: Mapping[Bound, Sequence[str]] = {
    "well": (
        *OBJECTS,
        '(name = "KV", kvNamespace = "kv")',
        '(name = "DB", wrapped = .d1Binding)',
        '(name = "LOGS", service = (name = "logs", entrypoint = "LogsRPC"))',
        '(name = "SITE", service = "site")',
    ),
    "wrong": (*OBJECTS, '(name = "DB", text = "not a database")', '(name = "LOGS", text = "not a service")'),
    "not": (),
}
AGENTS = """
INSERT INTO agents (btc_address, stx_address, display_name, erc8004_agent_id)
SELECT json_extract(value, '$.btc_address'), json_extract(value, '$.stx_address'),
  json_extract(value, '$.display_name'), json_extract(value, '$.erc8004_agent_id') FROM json_each(?)"""
CLAIMS = """
INSERT INTO claims (btc_address, status)
SELECT json_extract(value, '$.btc_address'), json_extract(value, '$.claim.status') FROM json_each(?)
WHERE json_extract(value, '$.claim') IS NOT NULL"""
SNAPSHOTS = RIG / "snapshots"
SNAPSHOT_CONFIG = Template("""
using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .worker)], sockets = [(name = "http", http = (), service = "main")],
);
const worker :Workerd.Worker = (
  modules = [$modules], compatibilityDate = "$date",
  compatibilityFlags = ["no_nodejs_compat", "no_nodejs_compat_v2"],
);
""")


def require_workerd() -> None:
    """Skip the test if the runtime is not installed. On CI, fail instead."""
    require(MODULES.exists() and any(WHEELS.glob(SDK)), NPM)


class Workerd:
    """One process on one directory. It can be started again after a kill; the directory survives."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        bound: Bound = "well",
        *,
        from_snapshot: bool = True,
        optimized: bool = False,
    ) -> None:
        """Prepare a process. `bound` "wrong": no KV, and text as DB and LOGS. "not": only the settings.

        Not `optimized`: V8 compiles Pyodide once, quickly. Optimizing it takes longer than most tests run.
        """
        self._directory = directory
        self._log = directory / "log"
        for name in ("objects", "blobs"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        (directory / "project.zip").write_bytes(_project())
        (directory / "snapshot.bin").write_bytes(snapshot() if from_snapshot else b"")
        flags = [] if optimized else ["--liftoff-only"]
        (directory / "config.capnp").write_text(_config(directory, settings, bound, flags))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def start(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [
                        *(_binary(), "serve", "config.capnp", "--experimental"),
                        f"--directory-path=objects={self._directory / 'objects'}",
                        f"--directory-path=blobs={self._directory / 'blobs'}",
                        f"--socket-fd=http={listener.fileno()}",
                    ],
                    cwd=self._directory,
                    pass_fds=[listener.fileno()],
                    stdout=log,
                    stderr=log,
                )

    def kill(self) -> None:
        """Kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def request(self, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        answer = self.ask(path, method=method, body=(body or "").encode())
        return answer.status, answer.body.decode()

    def ask(
        self, target: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """Make a request like `support.asgi.ask`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, target, body or None, dict(headers or {}))
            response = connection.getresponse()
            response_headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, response_headers, response.read())
        finally:
            connection.close()

    def sql(self, *batch: tuple[str, Sequence[Any]]) -> list[list[dict[str, Any]]]:
        """The rows of each statement of one batch on D1."""
        return [rows for rows, _read, _written in self._do(do="sql", batch=batch)]

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert these rows on D1, a few hundred at once."""
        for first in range(0, len(rows), 200):
            columns = list(rows[0])
            values = ", ".join(f"json_extract(value, '$.{column}')" for column in columns)
            insert = f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM json_each(?)"
            self.sql((insert, [json.dumps(rows[first : first + 200])]))

    def cost(self, batch: Sequence[tuple[str, Sequence[Any]]]) -> tuple[int, int]:
        """Run a batch. Returns how many rows D1 read and wrote for it."""
        results = self._do(do="sql", batch=batch)
        return sum(read for _, read, _ in results), sum(written for _, _, written in results)

    def migrate(self) -> None:
        """Apply the migrations, like `wrangler d1 migrations apply`."""
        for migration in load(COMPETITION_MIGRATIONS):
            self.sql(*[(statement, ()) for statement in migration.statements])

    def import_agents(self, lines: str) -> None:
        """Agents and claims, as JSON lines of the simulator."""
        agents = json.dumps([json.loads(line) for line in lines.splitlines()])
        self.sql((AGENTS, [agents]), (CLAIMS, [agents]))

    def limit_subrequests(self, limit: int) -> None:
        """Set how many subrequests an invocation of the scheduler may make."""
        self._do(do="subrequests", limit=limit)

    def scheduler_calls(self) -> list[str]:
        """Return the methods of the scheduler that were called since the last time."""
        called: list[str] = self._do(do="scheduler_calls")
        return called

    def trigger_example(self) -> None:
        """Fire the cron trigger of the Worker in examples/."""
        self._do(do="trigger_example")

    def set_clock(self, at: int | None) -> None:
        """Stop the Worker's clock at this time. None lets it run."""
        self._do(do="clock", at=at)

    def call(self, namespace: str, name: str, method: str, *arguments: JSON) -> Any:
        """Call an object like our stubs."""
        return read_reply(self._do(do="call", namespace=namespace, name=name, method=method, arguments=arguments))

    def site_call(self, method: str, *values: JSON) -> dict[str, Any]:
        """Call the scheduler from the site's Worker, which is in JavaScript. Returns what it saw."""
        status, text = self.request("POST", "/_site", json.dumps({"method": method, "values": values}))
        assert status == 200, f"{status} {text}\n{self.output()}"
        seen: dict[str, Any] = json.loads(text)
        return seen

    def native_call(self, namespace: str, name: str, method: str, *arguments: JSON) -> Any:
        """Call a method of the object's class itself."""
        return self._do(do="native", namespace=namespace, name=name, method=method, arguments=arguments)

    def recounted_files(self, files: list[str]) -> list[str]:
        """Return the files of rounds, recounted from their inputs."""
        recounted: list[str] = self._do(do="recount", files=files)
        return recounted

    def log_service(self) -> list[dict[str, Any]]:
        """The entries that the log service got."""
        entries: list[dict[str, Any]] = self._do(do="logs")
        return entries

    def console(self) -> list[dict[str, Any]]:
        """The structured lines on the console."""
        complete, _, _ = self._log.read_text().rpartition("\n")  # the last line may still be written
        return [json.loads(line) for line in complete.splitlines() if line.startswith('{"')]

    def output(self) -> str:
        return self._log.read_text()

    def _do(self, **options: Any) -> Any:
        status, text = self.request("POST", "/_test", json.dumps(options))
        assert status == 200, f"{status} {text}\n{self.output()}"
        return json.loads(text)


@contextmanager
def running(
    directory: Path,
    settings: Mapping[str, str],
    bound: Bound = "well",
    *,
    from_snapshot: bool = True,
    optimized: bool = False,
) -> Iterator[Workerd]:
    workerd = Workerd(directory, settings, bound, from_snapshot=from_snapshot, optimized=optimized)
    workerd.start()
    try:
        yield workerd
    finally:
        workerd.kill()


def _binary() -> Path:
    """The program itself: the command in `.bin` may be a Node script, and a kill would not reach workerd."""
    [path] = MODULES.glob("@cloudflare/workerd-*/bin/workerd")
    return path


@functools.cache
def _project() -> bytes:
    """Our package and its dependencies as they are deployed, and the Worker under test."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as bundle, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        subprocess.run([sys.executable, str(DEPLOYMENT / "bundle.py"), bundle], check=True)
        archive.write(HOLDFAST / "examples" / "heart.py", "heart.py")
        for root, folder in (
            (Path(bundle) / "src", "tocsin"),
            (Path(bundle) / "src", "holdfast"),
            (EXAMPLES.parent, "examples"),
            (HOLDFAST / "tests", "contract"),
            (TESTS, "cloudflare"),
        ):
            for file in sorted((root / folder).rglob("*")):
                is_test = file.name.startswith("test_")
                if (
                    file.suffix in {".py", ".json", ".sql", ".html"}
                    and "node_modules" not in file.parts
                    and not is_test
                ):
                    archive.write(file, file.relative_to(root))
        _add_libraries(archive)
    return packed.getvalue()


def _add_libraries(archive: zipfile.ZipFile) -> None:
    for wheel in sorted(set(WHEELS.glob("*.whl")) - set(WHEELS.glob(SDK))):
        with zipfile.ZipFile(wheel) as packed:
            for name in packed.namelist():
                archive.writestr(name, packed.read(name))


def _config(directory: Path, settings: Mapping[str, str], bound: Bound, v8_flags: Sequence[str]) -> str:
    """The configuration of workerd. Paths are relative to its directory."""
    embed = partial(_embed, directory)
    deployed = wrangler_config()
    miniflare = MODULES / "miniflare" / "dist" / "src" / "workers"
    [sdk] = WHEELS.glob(SDK)
    bindings = [f"(name = {_text(name)}, text = {_text(value)})" for name, value in settings.items()]
    bindings += BINDINGS[bound]
    modules = [
        f'(name = "host.js", esModule = {embed(RIG / "host.js")})',
        *_pyodide_modules(directory),
        f'(name = "workers_runtime_sdk.whl", data = {embed(sdk)})',
        '(name = "snapshot.bin", data = embed "snapshot.bin")',
    ]
    return Template((RIG / "config.capnp").read_text()).substitute(
        v8_flags=", ".join(map(_text, v8_flags)),
        modules=", ".join(modules),
        bindings=", ".join(bindings),
        date=deployed["compatibility_date"],
        flags=", ".join(_text(flag) for flag in deployed["compatibility_flags"] if flag != "python_workers"),
        logs=embed(RIG / "logs.js"),
        site=embed(RIG / "site.js"),
        shared=embed(miniflare / "shared" / "index.worker.js"),
        zod=embed(miniflare / "shared" / "zod.worker.js"),
        entry=embed(miniflare / "shared" / "object-entry.worker.js"),
        kv=embed(miniflare / "kv" / "namespace.worker.js"),
        d1=embed(miniflare / "d1" / "database.worker.js"),
    )


def _pyodide_modules(directory: Path) -> list[str]:
    """Return pyodide_start.js and its imports; project.zip is in the directory."""
    pyodide, embed = MODULES / "pyodide", partial(_embed, directory)
    return [
        f'(name = "pyodide_start.js", esModule = {embed(RIG / "pyodide_start.js")})',
        f'(name = "pyodide.mjs", esModule = {embed(pyodide / "pyodide.mjs")})',
        f'(name = "pyodide.asm.mjs", esModule = {embed(pyodide / "pyodide.asm.mjs")})',
        f'(name = "pyodide.asm.wasm", wasm = {embed(pyodide / "pyodide.asm.wasm")})',
        f'(name = "python_stdlib.zip", data = {embed(pyodide / "python_stdlib.zip")})',
        '(name = "project.zip", data = embed "project.zip")',
    ]


def _embed(directory: Path, path: Path) -> str:
    return f'embed "{os.path.relpath(path, directory)}"'


@functools.cache
def snapshot() -> bytes:
    """Return the memory of Pyodide with the libraries and our core imported. Rebuilt only when one of these changes."""
    made_from = [RIG / name for name in ("package-lock.json", "pyodide_start.js", "snapshot.js")]
    with zipfile.ZipFile(io.BytesIO(_project())) as archive:
        content = [f"{file.filename} {file.CRC}" for file in archive.infolist()]
    parts = [*(path.read_bytes() for path in made_from), *map(str.encode, content)]
    key = hashlib.sha256(b"\n".join(parts)).hexdigest()[:16]
    file = SNAPSHOTS / f"{key}.bin"
    SNAPSHOTS.mkdir(exist_ok=True)
    with (SNAPSHOTS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the processes of tests all start at the same time
        if not file.exists():
            for old in SNAPSHOTS.glob("*.bin"):
                old.unlink()
            with tempfile.TemporaryDirectory() as directory:
                made = _make_snapshot(Path(directory))
            part = file.with_suffix(".part")
            part.write_bytes(made)
            part.rename(file)
        return file.read_bytes()


def _make_snapshot(directory: Path) -> bytes:
    (directory / "project.zip").write_bytes(_project())
    modules = [
        f'(name = "snapshot.js", esModule = {_embed(directory, RIG / "snapshot.js")})',
        *_pyodide_modules(directory),
    ]
    config = SNAPSHOT_CONFIG.substitute(modules=", ".join(modules), date=wrangler_config()["compatibility_date"])
    (directory / "config.capnp").write_text(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [str(_binary()), "serve", "config.capnp", f"--socket-fd=http={listener.fileno()}"]
        process = subprocess.Popen(command, cwd=directory, pass_fds=[listener.fileno()])
    try:
        with urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE_S) as response:
            made: bytes = response.read()
    finally:
        process.kill()
        process.wait()
    return made


def wrangler_config() -> dict[str, Any]:
    """The deployed configuration, parsed without its comments."""
    text = (DEPLOYMENT / "wrangler.jsonc").read_text()
    config: dict[str, Any] = json.loads(re.sub(r"(^|\s)//.*$", "", text, flags=re.MULTILINE))
    return config


def _text(value: str) -> str:
    return json.dumps(value)
